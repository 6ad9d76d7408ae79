"""Where the runs of the reference values start: NumPy's generator, W_1, …, W_D in order."""

import numpy as np
import torch
from torch import Tensor


def start(family: str, depth: int, seed: int) -> Tensor:
    generator = np.random.default_rng(seed)
    return torch.tensor(np.stack([_matrix(family, generator) for _ in range(depth)]))


def _matrix(family: str, generator: np.random.Generator) -> np.ndarray:
    drawn = generator.standard_normal((10, 10))
    if family == "orthogonal":
        Q, R = np.linalg.qr(drawn)
        return Q * np.sign(np.diag(R))
    return drawn / 10**0.5 * (1.0 if family == "xavier" else 0.01)
