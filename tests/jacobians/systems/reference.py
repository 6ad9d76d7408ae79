"""The inputs and networks of the theory's reference tables; skiplens is imported inside, after the shape checker."""

import math
from itertools import pairwise

import torch


def sines(rows: int, columns: int) -> torch.Tensor:
    """Q(rows, columns): sin(k²), k = 1, 2, … row first."""
    return torch.sin(torch.arange(1, rows * columns + 1, dtype=torch.float64) ** 2).reshape(rows, columns)


def cosines(rows: int, columns: int) -> torch.Tensor:
    """Qc(rows, columns): cos(k²)."""
    return torch.cos(torch.arange(1, rows * columns + 1, dtype=torch.float64) ** 2).reshape(rows, columns)


def numbers(text: str) -> torch.Tensor:
    """The numbers of a table's cell."""
    return torch.tensor([float(word) for word in text.split()], dtype=torch.float64)


def residual_network(first, margin=0.1, opening=(), widths=(5, 4, 3), hidden=4, nonlinearity="tanh"):
    """`first`, then blocks with truncated skips: s_b wn(B) φ(0.5 wn(A) opening(Z)), s_b = (1 − margin)/√outputs."""
    from skiplens.jacobians import systems as ps

    phi = ps.NONLINEARITIES[nonlinearity] if isinstance(nonlinearity, str) else nonlinearity
    blocks = []
    for number, (inputs, outputs) in enumerate(pairwise(widths), start=2):
        branch = (
            *(ps.Elementwise(psi, inputs, name=f"block{number}.opening") for psi in opening),
            ps.Affine(ps.WeightNormalised(hidden, inputs, 1.0, 1 / math.sqrt(hidden)), name=f"block{number}.inner"),
            ps.Elementwise(phi, hidden, name=f"block{number}.phi"),
            ps.Affine(
                ps.WeightNormalised(outputs, hidden, 1.0, (1 - margin) / math.sqrt(outputs)),
                name=f"block{number}.outer",
            ),
        )
        skip = ps.SkipMap.truncation(outputs, inputs)
        blocks.append(ps.Residual(skip, ps.Composition(branch, name=f"block{number}.branch"), name=f"block{number}"))
    return ps.Composition((first, *blocks))


def network_a(**changes):
    """REF-A: the normalised residual network."""
    from skiplens.jacobians.systems.affine import Affine
    from skiplens.jacobians.systems.parameterisation import EntryNormalised

    return residual_network(Affine(EntryNormalised(5, 6), name="first"), **changes)


def network_r():
    """REF-R: the repaired network."""
    from skiplens.jacobians.systems.affine import Affine
    from skiplens.jacobians.systems.elementwise import NONLINEARITIES
    from skiplens.jacobians.systems.parameterisation import Free

    return residual_network(Affine(Free(5, 6), name="first"), margin=0.5, opening=(NONLINEARITIES["tanh"],))


def data_a() -> torch.Tensor:
    return sines(6, 4)


def start_a(scale: float = 1.5) -> torch.Tensor:
    """θ_m = scale · sin(m²/3), m = 1 … 94."""
    return scale * torch.sin(torch.arange(1, 95, dtype=torch.float64) ** 2 / 3)


LABELS_A = torch.tensor([0, 1, 2, 0])
