"""The binary format of CIFAR: records of one or two label bytes and 3×32×32 pixels. (Never its pickles.)"""

import torch
from torch import Tensor

from skiplens.core.errors import DataError

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32


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
