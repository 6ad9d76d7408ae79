"""Readings made by hand, for tests of what is done with readings."""

import torch

from skiplens.curvature.reading import HessianSpectrum
from skiplens.jacobians.reading import JacobianSpectrum
from skiplens.readings.reading import Provenance
from skiplens.signal.structure import StructureReading


def structure(blocks: int = 2, **changes) -> StructureReading:
    """A network of `blocks` blocks; every second shortcut is a projection with three parameters."""
    values = {
        "model": "Net",
        "structure": "residual",
        "parameters": 10,
        "trainable_parameters": 10,
        "buffers": 0,
        "dtype": "float32",
        "training": False,
        "input_shapes": ("1 × 3",),
        "output_shape": "1 × 2",
        "operations": 4,
        "block_names": tuple("abcdefghijklmnopqrstuvwxyz"[:blocks]),
        "joins": tuple(f"add_{index}" for index in range(blocks)),
        "shortcuts": tuple("projection" if index % 2 else "identity" for index in range(blocks)),
        "branch_depths": torch.full((blocks,), 2),
        "branch_parameters": torch.arange(blocks) + 3,
        "shortcut_parameters": 3 * (torch.arange(blocks) % 2),
        "parents": (None,) * blocks,
        "dense_joins": (),
        "provenance": Provenance.begin({"lens": "structure"}, seed=0).end(),
    }
    return StructureReading(**(values | changes))


def curvature(**changes) -> HessianSpectrum:
    """Five eigenvalues, two of them negative."""
    eigenvalues = torch.tensor([-1.0, -0.5, 0.5, 2.0, 4.0], dtype=torch.float64)
    grid = torch.linspace(-2, 5, 8, dtype=torch.float64)
    values = {
        "of": "hessian",
        "method": "exact",
        "parameters": 5,
        "samples": 6,
        "loss": 0.7,
        "gradient_norm": 0.1,
        "eigenvalues": eigenvalues,
        "nodes": eigenvalues,
        "weights": torch.full((5,), 0.2, dtype=torch.float64),
        "largest": 4.0,
        "smallest": -1.0,
        "trace": 5.0,
        "frobenius_norm": 21.5**0.5,
        "condition_interval": (8.0, 8.0),
        "index_interval": (0.4, 0.4),
        "flat_interval": (0.0, 0.0),
        "grid": grid,
        "density": torch.full((8,), 1 / 7, dtype=torch.float64),
        "density_error": torch.zeros(8, dtype=torch.float64),
        "smoothing_width": 0.5,
        "rounding": 1e-10,
        "provenance": Provenance.begin({"lens": "curvature"}, seed=0).end(),
    }
    return HessianSpectrum(**(values | changes))


def jacobians(network: torch.Tensor | None = None, shares: torch.Tensor | None = None, **changes) -> JacobianSpectrum:
    """Two blocks, of which the second loses half of its directions without its shortcut, and a network."""
    network = torch.tensor([2.0, 1.0, 0.5]) if network is None else network
    values = {"a": torch.tensor([1.5, 1.0]), "b": torch.tensor([2.0, 0.9]), "network": network}
    even = {name: torch.full_like(entry, 1 / len(entry)) for name, entry in values.items()}
    fields = {
        "singular_values": values,
        "weights": even if shares is None else even | {"network": shares},
        "without_shortcut": {"a": torch.tensor([0.5, 0.1]), "b": torch.tensor([1.0, 0.0])},
        "without_shortcut_weights": {"a": torch.full((2,), 0.5), "b": torch.full((2,), 0.5)},
        "counts": (2, 2, len(network)),
        "methods": ("exact", "lanczos", "exact"),
        "shortcuts": ("identity", "projection"),
        "samples": 1,
        "coupled": False,
        "notes": ("A note.",),
        "provenance": Provenance.begin({"lens": "jacobians"}, seed=0).end(),
    }
    return JacobianSpectrum(**(fields | changes))
