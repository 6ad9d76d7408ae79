"""Symmetric matrices with known spectra."""

import torch
from torch import Tensor


def with_spectrum(eigenvalues: Tensor, generator: torch.Generator) -> Tensor:
    Q = torch.linalg.qr(torch.randn(len(eigenvalues), len(eigenvalues), generator=generator)).Q.to(eigenvalues.dtype)
    A = (Q * eigenvalues) @ Q.T
    return (A + A.T) / 2
