"""The idx format of MNIST and Fashion-MNIST: two zero bytes, a type, a number of axes, their lengths, the values."""

import struct
from math import prod

import torch
from torch import Tensor

from skiplens.core.errors import DataError

_UNSIGNED_BYTE = 0x08


def read_idx(content: bytes, where: str = "the idx file") -> Tensor:
    """The uint8 array stored in `content`; `where` names the file in an error."""
    shape, start = _read_header(content, where)
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


def write_idx(array: Tensor) -> bytes:
    """The idx file that holds the uint8 `array`."""
    header = struct.pack(">HBB", 0, _UNSIGNED_BYTE, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.contiguous().numpy().tobytes()


def _read_header(content: bytes, where: str) -> tuple[tuple[int, ...], int]:
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
    return struct.unpack(f">{axes}I", content[4:start]), start
