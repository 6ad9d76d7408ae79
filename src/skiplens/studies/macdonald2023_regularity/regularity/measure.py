"""λ(DF) and its lower bounds at random parameters of many sizes, and the lemma behind the first layer."""

from dataclasses import dataclass

import torch

from skiplens.core.axes import Tensor
from skiplens.core.settings import option
from skiplens.studies.macdonald2023_regularity.networks import (
    SCALES,
    ResidualNetwork,
    random_data,
    random_parameters,
)
from skiplens.studies.replicates import ReplicateSettings
from skiplens.theory.parameterised_systems import (
    Affine,
    Composition,
    Convolution,
    EntryNormalised,
    Free,
    Parameterisation,
    Residual,
    smallest_gram_eigenvalue,
    smallest_singular_value,
)
from skiplens.theory.regularity import Regularity, regularity, skip_bound

IMAGE, WINDOW = (4, 4), (3, 3)


@dataclass(frozen=True)
class Points(ReplicateSettings):
    """Random data and parameters of several sizes."""

    points: int = option(4, "parameters of each size")


@dataclass(frozen=True)
class FirstLayer(ReplicateSettings):
    """A convolution on one image, and an entry-normalised layer."""

    samples: int = option(3, "of the entry-normalised layer")


def regular_points(settings: Points) -> dict[str, Tensor]:
    """At each size (sizes, points): λ(DF), its bounds, the slack of lemma B.4, and λ(DF) without skips."""
    generator = settings.stream()
    network, data = ResidualNetwork().system(), random_data(generator)
    chain = Composition(tuple(_without_skip(layer) for layer in network.layers))
    rows: list[list[tuple[float, ...]]] = []
    for scale in SCALES:
        drawn = [random_parameters(network, scale, generator) for _ in range(settings.points)]
        rows.append([(*_numbers(regularity(network, theta, data)), _lambda(chain, theta, data)) for theta in drawn])
    names = ("true", "from_layers", "from_skips", "slack_of_skips", "chain")
    return dict(zip(names, torch.tensor(rows, dtype=torch.float64).unbind(-1), strict=True))


def first_layers(settings: FirstLayer) -> dict[str, Tensor]:
    """σ(D aff)/(σ(X) σ(DP)): with fewer parameters than entries (a convolution), and with one for each."""
    generator = settings.stream()
    convolution = Convolution(Free(1, 9), channels=1, image=IMAGE, window=WINDOW)
    entries = EntryNormalised(3, 6)
    shapes: tuple[tuple[str, Parameterisation, int], ...] = (
        ("convolution", convolution, 1),
        ("entry_normalised", entries, settings.samples),
    )
    found = {}
    for name, parameterisation, samples in shapes:
        data = torch.randn(parameterisation.inputs, samples, dtype=torch.float64, generator=generator)
        weights = torch.randn(parameterisation.parameters, dtype=torch.float64, generator=generator)
        whole = smallest_singular_value(Affine(parameterisation).parameter_derivative(weights, data))
        parts = smallest_singular_value(data) * smallest_singular_value(parameterisation.derivative(weights))
        found[name] = torch.tensor(whole / parts, dtype=torch.float64)
    return found


def _without_skip(layer: object) -> Affine | Composition:
    """The branch of a residual layer; another layer as it is."""
    found = layer.branch if isinstance(layer, Residual) else layer
    assert isinstance(found, Affine | Composition), "the networks of the study are affine maps and residual blocks"
    return found


def _numbers(found: Regularity) -> tuple[float, float, float, float]:
    """λ(DF), both bounds, and the smallest σ(Jf) − (1 − |Jg|) of the blocks."""
    slacks = [
        layer.smallest_gain - skip_bound(layer.branch_gain) for layer in found.layers if layer.branch_gain is not None
    ]
    return found.true, found.from_layers, found.from_skips, min(slacks)


def _lambda(system: Composition, parameters: Tensor, data: Tensor) -> float:
    return smallest_gram_eigenvalue(system.parameter_derivative(parameters, data))
