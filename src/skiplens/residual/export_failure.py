"""Why `torch.export` refused a model, in one sentence and with the place in the user's own code."""

import re
import traceback
from pathlib import Path

import torch
from torch import nn

from skiplens.residual.trial import first_line

_DATA_DEPENDENT = re.compile(r"data-dependent|GuardOnDataDependent|_local_scalar_dense|\.item\(\)")
_TORCH_FOLDER = str(Path(torch.__file__).parent)
_OWN_FOLDER = str(Path(__file__).parent)
_FRAME_IN_MESSAGE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)\n\s+(?P<code>.+)')


def explain(model: nn.Module, error: Exception) -> str:
    """What to tell the user about a model that could not be exported."""
    if _DATA_DEPENDENT.search(f"{type(error).__name__}: {error}"):
        reason = "its forward pass decides something in Python by the values inside a tensor"
        advice = "Decide by shapes or settings instead (or with torch.where, torch.cond), and look again."
    else:
        reason = f"torch.export said: {type(error).__name__}: {first_line(error).rstrip('.')}"
        advice = "Write the forward pass with torch operations only, and try torch.export.export(model, inputs) alone."
    place = _place_in_user_code(error)
    return f"{type(model).__name__} cannot be exported, so its graph cannot be read: {reason}{place}. {advice}"


def _place_in_user_code(error: Exception) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_TORCH_FOLDER, _OWN_FOLDER, "<"))
    ]
    if frames:
        frame = frames[-1]
        return f" (at {frame.filename}:{frame.lineno}, in {frame.name}: {frame.line})"
    named = _FRAME_IN_MESSAGE.search(str(error))
    if named:
        return f" (at {named['file']}:{named['line']}, in {named['function']}: {named['code'].strip()})"
    return ""
