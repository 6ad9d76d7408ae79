"""Readings made by hand: a healthy network, and one change at a time."""

import torch

from skiplens.paths.reading import PathSpectrum
from skiplens.signal.reading import SignalReading
from skiplens.tangent.reading import TangentReading


def signal(blocks: int = 8, rate: float = 0.0, back: float = 0.0, **changes) -> SignalReading:
    """Signal and gradient that grow by e^rate and e^back at each of `blocks` outermost blocks."""
    names = tuple(f"b{index}" for index in range(blocks))
    depths = torch.arange(blocks + 1.0)[:, None].expand(blocks + 1, 4)
    ones = torch.ones(blocks)
    values = {
        "samples": 4,
        "precision": "float32",
        "block_names": names,
        "outermost": (True,) * blocks,
        "signal": torch.exp(rate * depths),
        "gradient": torch.exp(back * (blocks - depths)),
        "branch_norms": 0.3 * ones,
        "shortcut_norms": ones,
        "alignments": 0 * ones,
        "branch_gradients": ones,
        "norm_scales": ones,
        "weight_norms": ones,
        "dead_units": 0 * ones,
        "dead_widths": torch.full((blocks,), 64),
        "saturated_units": torch.full((blocks,), float("nan")),
        "zero_factors": torch.zeros(blocks, dtype=torch.int64),
        "branch_depths": torch.full((blocks,), 2),
        "widths": torch.full((blocks,), 64),
        "normalised": (False,) * blocks,
        "matrices": tuple((f"{name}.0.weight", f"{name}.1.weight") for name in names),
        "scales": ((),) * blocks,
        "shifts": tuple((f"{name}.0.bias", f"{name}.1.bias") for name in names),
        "output_parameters": tuple((f"{name}.1.bias", f"{name}.1.weight") for name in names),
    }
    return SignalReading(**(values | changes))


def at(blocks: int, index: int, value: float, other: float = 0.0) -> torch.Tensor:
    """A number for one block, another for the rest."""
    return torch.tensor([value if place == index else other for place in range(blocks)])


def paths(energy: list[float], **changes) -> PathSpectrum:
    """A spectrum of the signal with one energy for each number of branches."""
    values = torch.tensor(energy)
    fields = {
        "of": "signal",
        "energy": values,
        "shares": values / values.sum(),
        "total_energy": float(values.sum()),
        "sample_energy": values[None],
        "coherent_depth": 1.0,
        "block_names": tuple(f"b{index}" for index in range(len(energy) - 1)),
    }
    return PathSpectrum(**(fields | changes))


def tangent(eigenvalues: list[float], dtype: torch.dtype = torch.float64) -> TangentReading:
    """A diagonal kernel."""
    return TangentReading(
        kernel=torch.diag(torch.tensor(eigenvalues, dtype=dtype)),
        targets=torch.zeros(0, dtype=torch.int64),
        angles=torch.zeros(0, 0),
        parameters=10,
        batch_coupled=False,
    )
