"""How images are stored: idx files (MNIST), CIFAR's records, and pictures that Pillow decodes."""

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from skiplens.base.errors import DataError, InvalidInputError
from skiplens.base.optional_imports import optional_import

_UNSIGNED_BYTE = 0x08
SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
_GREY_MODES = ("L", "1", "LA")
_DEEP_MODES = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")


def read_idx(content: bytes, where: str = "the idx file") -> Tensor:
    """The uint8 array stored in `content`; `where` names the file in an error."""
    if len(content) < 4:
        raise DataError(f"{where} is truncated: it has {len(content)} bytes, less than the idx header. Fetch it again.")
    zero, kind, axes = struct.unpack(">HBB", content[:4])
    if zero != 0 or kind != _UNSIGNED_BYTE:
        raise DataError(
            f"{where} is no idx file of unsigned bytes: it starts with {content[:4].hex()}, wanted 000008 and the "
            "number of axes. If it is compressed, keep its .gz ending."
        )
    start = 4 + 4 * axes
    if len(content) < start:
        raise DataError(f"{where} is truncated: its idx header of {start} bytes is cut at {len(content)}.")
    shape = struct.unpack(f">{axes}I", content[4:start])
    wanted = start + prod(shape)
    if len(content) != wanted:
        problem = "is truncated" if len(content) < wanted else "has bytes after its end"
        raise DataError(
            f"{where} {problem}: its header announces shape {shape}, which is {wanted} bytes, but it has "
            f"{len(content)}. Delete it and fetch it again."
        )
    if prod(shape) == 0:
        return torch.empty(shape, dtype=torch.uint8)
    return torch.frombuffer(bytearray(content[start:]), dtype=torch.uint8).reshape(shape)


def read_cifar(content: bytes, label_bytes: int, classes: int, where: str = "the CIFAR file") -> tuple[Tensor, Tensor]:
    """The uint8 images (samples, 3, 32, 32) and the labels in `content`; the last label byte is the finest label."""
    record = label_bytes + PIXELS
    if not content or len(content) % record:
        raise DataError(
            f"{where} is truncated: it has {len(content)} bytes, which is no multiple of {record}, the bytes of a "
            f"record of {label_bytes} label bytes and {PIXELS} pixels. Delete it and fetch it again."
        )
    records = torch.frombuffer(bytearray(content), dtype=torch.uint8).reshape(-1, record)
    labels = records[:, label_bytes - 1].long()
    if labels.max() >= classes:
        raise DataError(
            f"{where} has the label {int(labels.max())}, but there are {classes} classes; is it another file?"
        )
    return records[:, label_bytes:].reshape(-1, *SHAPE), labels


def write_cifar(images: Tensor, labels: Tensor) -> bytes:
    """The binary file with one label byte per record that holds the uint8 `images`."""
    return torch.cat([labels.to(torch.uint8)[:, None], images.reshape(len(images), PIXELS)], dim=1).numpy().tobytes()


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
    pillow = optional_import("PIL.Image", "reading images", "pillow")
    try:
        with pillow.open(path) as image:
            picture = _framed(_in_mode(image, channels, path), framing, path, pillow)
            flat = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
            return flat.reshape(picture.height, picture.width, -1).permute(2, 0, 1).contiguous()
    except (OSError, SyntaxError, ValueError, EOFError, pillow.DecompressionBombError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise DataError(f"{path} could not be read as an image ({error}). Replace it or move it away.") from error


def _in_mode(image: Any, channels: int | None, path: Path) -> Any:
    if image.mode in _DEEP_MODES:
        raise InvalidInputError(f"{path} has more than 8 bits per channel (mode {image.mode}); convert it to 8 bits.")
    grey = image.mode in _GREY_MODES if channels is None else channels == 1
    # A palette with transparency is only understood by way of RGBA.
    return (image.convert("RGBA") if image.mode == "P" else image).convert("L" if grey else "RGB")


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
