"""A short name for the values of tensors."""

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor


def fingerprint(named: Iterable[tuple[str, Tensor]]) -> str:
    """Sixteen hexadecimal digits that tell one set of named tensors from another, by name, type, shape and bits."""
    digest = hashlib.sha256()
    for name, tensor in named:
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
