"""One image file to one uint8 tensor, with Pillow; an error names the file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from skiplens.core.doors import open_door
from skiplens.core.errors import DataError, InvalidInputError

_GREY_MODES = ("L", "1", "LA")
_DEEP_MODES = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")


@dataclass(frozen=True)
class Framing:
    """How an image is cut to size: its shorter side is scaled to `resize`, then a centred square of `crop` is cut."""

    resize: int | None = None
    crop: int | None = None

    def __post_init__(self) -> None:
        """Refuse sizes that are not positive."""
        for name, size in (("resize", self.resize), ("crop", self.crop)):
            if size is not None and size < 1:
                raise InvalidInputError(f"{name} must be at least 1 pixel; got {size}.")


def decode(path: Path, framing: Framing, channels: int | None = None) -> Tensor:
    """The image as uint8 (channels, height, width): 1 channel (grey) or 3 (RGB); as the file has it if not given."""
    pillow = open_door("PIL.Image", "reading images", "pillow")
    try:
        with pillow.open(path) as image:
            return _to_tensor(_framed(_in_mode(image, channels, path), framing, path, pillow))
    except (OSError, SyntaxError, ValueError, EOFError, pillow.DecompressionBombError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise DataError(f"{path} could not be read as an image ({error}). Replace it or move it away.") from error


def _in_mode(image: Any, channels: int | None, path: Path) -> Any:
    if image.mode in _DEEP_MODES:
        raise InvalidInputError(f"{path} has more than 8 bits per channel (mode {image.mode}); convert it to 8 bits.")
    grey = image.mode in _GREY_MODES if channels is None else channels == 1
    # A palette with transparency is only understood by way of RGBA.
    picture = image.convert("RGBA") if image.mode == "P" else image
    return picture.convert("L" if grey else "RGB")


def _framed(image: Any, framing: Framing, path: Path, pillow: Any) -> Any:
    if framing.resize is not None:
        scale = framing.resize / min(image.size)
        size = tuple(max(framing.resize, round(side * scale)) for side in image.size)
        image = image.resize(size, pillow.Resampling.BILINEAR)
    if framing.crop is None:
        return image
    if min(image.size) < framing.crop:
        raise InvalidInputError(
            f"{path} is {image.width}×{image.height}, smaller than the crop of {framing.crop}×{framing.crop}. "
            "Ask for a smaller crop, or for resize as well."
        )
    left, top = ((side - framing.crop) // 2 for side in image.size)
    return image.crop((left, top, left + framing.crop, top + framing.crop))


def _to_tensor(image: Any) -> Tensor:
    flat = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    return flat.reshape(image.height, image.width, -1).permute(2, 0, 1).contiguous()
