"""Models, weights, data and losses from the words that name them, such as `zoo:NAME` or `path/file.py:function`."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from skiplens import data, zoo
from skiplens.base.arguments import with_article
from skiplens.base.errors import BrokenFileError, InvalidInputError, ModelSpecError, UnsafeFileError, did_you_mean
from skiplens.base.files import is_file
from skiplens.base.import_by_name import call_by_name, import_by_name
from skiplens.base.optional_imports import optional_import
from skiplens.cli import console
from skiplens.graph.inputs import first_line
from skiplens.graph.loss import NAMED


def build_model(spec: str, seed: int = 0) -> nn.Module:
    """The model that `spec` names.

    `zoo:NAME` takes options after commas, as in ``zoo:tangent_resnet,depth=10,branch_scale=0.3``, and `seed` for its
    weights. A function of a file or a package is called without arguments and must return an `nn.Module`.
    """
    if ":" not in spec:
        raise ModelSpecError(
            f"{spec!r} does not name a model. Write zoo:NAME (skiplens zoo lists them), path/file.py:function or "
            "package.module:function."
        )
    if spec.startswith("zoo:"):
        name, comma, options = spec.removeprefix("zoo:").partition(",")
        return zoo.build_from_text(f"{name},seed={seed}{comma}{options}")
    model = call_by_name(spec)
    if not isinstance(model, nn.Module):
        raise ModelSpecError(
            f"{spec!r} returned {with_article(type(model).__name__)}, not a torch.nn.Module. Return the model itself."
        )
    return model


def data_for(model: str, named: str) -> Any:
    """The data that was named; the images of a data set are brought to the form that a network of the zoo takes."""
    if ":" in named and not named.endswith((":train", ":test")):
        return call_by_name(named)
    with console.progress_shown() as progress:
        images = data.load(named, progress=progress)
    if not model.startswith("zoo:"):
        return images
    name, options = zoo.parse(model.removeprefix("zoo:"))
    options.pop("seed", None)
    fitted = data.fit_to(images, zoo.entry(name).settings(options).input_shape())
    if fitted.description != images.name:
        console.err().print(f"data: {fitted.description}", markup=False)
    return fitted


def loss_named(words: str | None) -> Any:
    """The loss for `inspect` and `compare`: a name that they know, or the function (or torch module) that is named."""
    if words is None or words in NAMED:
        return words
    if ":" not in words:
        raise InvalidInputError(
            f"There is no loss {words!r}. {did_you_mean(words, NAMED)} A loss of your own is named "
            "path/file.py:function or package.module:function; it is called with outputs and targets."
        )
    loss = import_by_name(words)
    is_module = isinstance(loss, type) and issubclass(loss, nn.Module)  # such as torch.nn:HuberLoss
    return call_by_name(words) if is_module else loss


def load_weights(model: nn.Module, path: Path | str) -> nn.Module:
    """`model` with the weights of `path`; every name and shape must fit."""
    path = Path(path)
    if not is_file(path):
        raise InvalidInputError(f"There is no file of weights {path}.")
    state = _read_safetensors(path) if path.suffix == ".safetensors" else _read_checkpoint(path)
    _require_fit(model, state, path)
    try:
        model.load_state_dict(state)
    except Exception as error:  # tensors of a kind that cannot be copied, such as sparse ones
        raise InvalidInputError(f"The weights of {path} cannot be loaded: {first_line(error)}") from error
    return model


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    safetensors = optional_import("safetensors.torch", "reading .safetensors weights", "safetensors")
    try:
        return safetensors.load_file(path)
    except Exception as error:  # SafetensorError, and what torch says to types and sizes that a foreign file declares
        raise BrokenFileError(f"{path} is not a whole safetensors file: {first_line(error)}.") from error


def _read_checkpoint(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UnsafeFileError(
            f"{path} was refused: loading it would run code that it brings along, or it is no checkpoint at all. "
            "Save the weights alone, with torch.save(model.state_dict(), FILE) or as safetensors."
        ) from error
    except Exception as error:  # a cut or foreign file makes the unpickler stumble in any way
        raise BrokenFileError(
            f"{path} is not a whole checkpoint: {type(error).__name__}: {first_line(error)}"
        ) from error
    if isinstance(content, Mapping):
        for wrapper in ("state_dict", "model_state_dict", "model"):  # where training scripts keep the weights
            if isinstance(content.get(wrapper), Mapping):
                content = content[wrapper]
                break
        if content and all(isinstance(value, Tensor) for value in content.values()):
            return {str(name): value for name, value in content.items()}
    raise InvalidInputError(
        f"{path} does not hold a mapping from names to tensors. Save it with torch.save(model.state_dict(), FILE)."
    )


def _require_fit(model: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    wanted = model.state_dict()
    problems = [f"missing: {_some(wanted.keys() - state.keys())}"] if wanted.keys() - state.keys() else []
    if state.keys() - wanted.keys():
        problems.append(f"unknown: {_some(state.keys() - wanted.keys())}")
    shapes = {
        f"{name} has shape {tuple(state[name].shape)} instead of {tuple(wanted[name].shape)}"
        for name in wanted.keys() & state.keys()
        if state[name].shape != wanted[name].shape
    }
    if shapes:
        problems.append(_some(shapes))
    if problems:
        raise InvalidInputError(f"The weights of {path} do not fit {type(model).__name__}: {'; '.join(problems)}.")


def _some(names: set[str]) -> str:
    shown = sorted(names)[:3]
    return ", ".join(shown) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
