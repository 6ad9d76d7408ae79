"""Theorem 2: settings of its runs, and how large they are at each preset."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.settings import option
from skiplens.linalg.second_moments import SecondMoments
from skiplens.papers.li2016_shortcuts.common import (
    WIDTH,
    Source,
    digit_moments,
    printed_condition_number,
    printed_one_shortcut,
    printed_two_shortcut,
    scalars,
    whitened_digits,
)
from skiplens.papers.li2016_shortcuts.hessian.activations import BranchActivations
from skiplens.papers.li2016_shortcuts.hessian.at_zero import near_zero_rectified_spectrum
from skiplens.papers.li2016_shortcuts.hessian.exact import hessian_by_autograd, shortcut_outputs, square_loss, unflatten
from skiplens.papers.li2016_shortcuts.hessian.linear import linear_hessian, shortcut_units
from skiplens.papers.li2016_shortcuts.hessian.spectrum import spectrum_of
from skiplens.papers.statistics import ReplicateSettings, replicated
from skiplens.papers.study import Preset
from skiplens.sweeps.run import Run
from skiplens.zoo.weight_laws import xavier_weights

Activations = Literal["identity", "smooth"]


@dataclass(frozen=True)
class RandomData(ReplicateSettings):
    """Gaussian inputs with random labels, and the network that sees them."""

    units: int = option(3, "residual units (R)")
    branch_depth: int = option(2, "weight matrices of a unit, the shortcut's length (n)")
    width: int = option(3, "features (d)")
    samples: int = option(20, "samples (m)")


@dataclass(frozen=True)
class Structure(RandomData):
    """The Hessian at zero by automatic differentiation, beside the printed one."""

    activations: Activations = option("identity", "smooth: softplus before, SiLU between, tanh after the matrices")


@dataclass(frozen=True)
class Picture(RandomData):
    """The Hessian at zero itself, to be seen."""


@dataclass(frozen=True)
class Derivatives(RandomData):
    """Derivatives of the loss at zero along a random direction."""


@dataclass(frozen=True)
class Biased(RandomData):
    """The network of theorem 1, with biases."""


@dataclass(frozen=True)
class DigitSpectrum(ReplicateSettings):
    """The spectrum at zero of a linear network on digits whose principal components have random signs."""

    depth: int = option(2, "weight matrices (D)")
    branch_depth: int = option(2, "weight matrices of a unit (n)")
    source: Source = option("mnist", "digits: the embedded ones or all of MNIST")


@dataclass(frozen=True)
class NearZero(ReplicateSettings):
    """The true spectrum beside zero of a 2-shortcut network with ReLU between its matrices."""

    depth: int = option(2, "weight matrices (D)")
    samples: int = option(1000, "first digits, whitened by themselves")


@dataclass(frozen=True)
class Sizes:
    """How large the runs of one preset are."""

    replicates: int
    depths: tuple[int, ...]
    source: Source


SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes(10, (2, 4, 8, 16), "sample"),
    "laptop": Sizes(20, (2, 4, 8, 16), "mnist"),
    "paper": Sizes(20, (2, 4, 8, 16, 32, 64), "mnist"),
}

UNITS = (1, 2, 4)
"""At which random data are looked at with automatic differentiation."""

BRANCH_DEPTHS = (1, 2, 3)

RECTIFIED_DEPTHS = (4, 16, 64)

RECTIFIED_REPLICATES = 60
"""More than of the others: networks differ much beside zero, and little work is needed to see it."""


def runs(preset: Preset, seed: int) -> list[Run]:
    """Random data with automatic differentiation, digits with closed forms."""
    sizes = SIZES[preset]
    count = sizes.replicates

    def repeat(measure: str, base: ReplicateSettings, **axes: Any) -> list[Run]:
        return replicated(f"{__name__}:{measure}", base, count, seed, **axes)

    digits = DigitSpectrum(source=sizes.source)
    return [
        *repeat("structure", Structure(), branch_depth=BRANCH_DEPTHS, units=UNITS),
        *repeat("structure", Structure(activations="smooth"), units=UNITS),
        *replicated(f"{__name__}:picture", Picture(), 1, seed, branch_depth=BRANCH_DEPTHS),
        *repeat("derivatives", Derivatives(units=2), branch_depth=(2, 3, 4)),
        *repeat("biased", Biased(), units=UNITS),
        *repeat("digit_spectrum", dataclasses.replace(digits, branch_depth=1), depth=sizes.depths),
        *repeat("digit_spectrum", digits, depth=sizes.depths[:-1]),  # nothing new in the deepest of them
        *replicated(f"{__name__}:near_zero", NearZero(), RECTIFIED_REPLICATES, seed, depth=RECTIFIED_DEPTHS),
    ]


ACTIVATIONS = {
    "identity": BranchActivations(),
    "smooth": BranchActivations(pre="softplus", mid="silu", post="tanh"),
}

SLOPES = {"identity": 1.0, "smooth": 0.5}
"""σ_mid'(0) σ_post'(0): SiLU has 1/2, tanh 1. σ_pre(0) need not vanish, and softplus' does not."""


def structure(settings: Structure) -> dict[str, Tensor]:
    """How far the Hessian at zero is from the printed one; for two matrices a unit also what its eigenvalues say."""
    inputs, targets = random_data(settings)
    H = _hessian(settings, inputs, targets, settings.activations)
    G = _slope(settings, inputs, targets)
    found = {"error": (H - _printed(settings, inputs, G)).abs().max() / G.abs().max()}
    if settings.branch_depth == 2:
        found |= _two_shortcut_facts(torch.linalg.eigvalsh(H), G, settings)
    return found


def picture(settings: Picture) -> dict[str, Tensor]:
    """The Hessian at zero by automatic differentiation."""
    return {"hessian": _hessian(settings, *random_data(settings), "identity")}


def derivatives(settings: Derivatives) -> dict[str, Tensor]:
    """Derivatives of order 1 to n of the loss along a random direction, the last one first in size."""
    inputs, targets = random_data(settings)
    shape = (settings.units * settings.branch_depth, settings.width, settings.width)
    direction = torch.randn(shape, dtype=torch.float64, generator=settings.stream())

    def along(t: Tensor) -> Tensor:
        return square_loss(
            shortcut_outputs(t * direction, inputs, settings.branch_depth, ACTIVATIONS["identity"]), targets
        )

    orders = torch.stack(_taylor(along, settings.branch_depth))
    return {"order": torch.arange(1, len(orders) + 1), "derivative": orders}


def biased(settings: Biased) -> dict[str, Tensor]:
    """Spectrum at zero of equation (3)'s network with tanh instead of ReLU: zeros, and the condition of the rest."""
    inputs, targets = random_data(settings)
    d = settings.width

    def loss(params: Tensor) -> Tensor:
        h = inputs
        for unit in params.unflatten(0, (settings.units, -1)):
            W_1, b, W_2 = unit[: d * d].view(d, d), unit[d * d : d * d + d], unit[d * d + d :].view(d, d)
            h = h + torch.tanh(h @ W_1.T + b) @ W_2.T
        return square_loss(h, targets)

    sizes = (
        torch.linalg.eigvalsh(hessian_by_autograd(loss, _zeros(settings.units * d * (2 * d + 1)))).abs().sort().values
    )
    zeros = settings.units * d
    return {
        "smallest_share": sizes[0] / sizes[-1],
        "largest_zero_share": sizes[zeros - 1] / sizes[-1],
        "condition_of_rest": sizes[-1] / sizes[zeros],
    }


def digit_spectrum(settings: DigitSpectrum) -> dict[str, Tensor]:
    """The spectrum at exactly zero weights on digits, and equation (9) for two matrices a unit."""
    moments = _with_random_signs(digit_moments(settings.source), settings.shared_stream("signs"))
    weights = torch.zeros(settings.depth, WIDTH, WIDTH, dtype=torch.float64)
    spectrum = spectrum_of(linear_hessian(shortcut_units(weights, settings.branch_depth), moments))
    return scalars(
        largest=spectrum.largest,
        smallest=spectrum.smallest,
        tenth=spectrum.absolute_quantile(0.1),
        condition_number=spectrum.condition_number,
        full_condition_number=spectrum.full_condition_number,
        index=spectrum.index,
        printed_condition_number=printed_condition_number(moments.inputs - moments.cross),
    )


def near_zero(settings: NearZero) -> dict[str, Tensor]:
    """The condition number beside zero with ReLU between the matrices, and that of the slope-1/2 convention."""
    inputs, targets = whitened_digits("sample", settings.samples)
    generator = settings.stream()
    first = torch.stack([xavier_weights((WIDTH, WIDTH), generator) for _ in range(settings.depth // 2)])
    spectrum = near_zero_rectified_spectrum(first, inputs, targets)
    G = (inputs - targets).T @ inputs / len(inputs)
    return scalars(
        condition_number=spectrum.condition_number, convention=float(torch.linalg.cond(G)), index=spectrum.index
    )


def random_data(settings: RandomData) -> tuple[Float[Tensor, "samples width"], Float[Tensor, "samples width"]]:
    """Gaussian inputs and random one-hot labels, the same for all networks of a replicate."""
    generator = settings.shared_stream("data")
    inputs = torch.randn(settings.samples, settings.width, dtype=torch.float64, generator=generator)
    labels = torch.randint(settings.width, (settings.samples,), generator=generator)
    return inputs, torch.eye(settings.width, dtype=torch.float64)[labels]


def _hessian(settings: RandomData, inputs: Tensor, targets: Tensor, activations: str) -> Tensor:
    def loss(params: Tensor) -> Tensor:
        weights = unflatten(params, settings.width)
        return square_loss(shortcut_outputs(weights, inputs, settings.branch_depth, ACTIVATIONS[activations]), targets)

    return hessian_by_autograd(loss, _zeros(settings.units * settings.branch_depth * settings.width**2))


def _slope(settings: Structure, inputs: Tensor, targets: Tensor) -> Tensor:
    """Σ^{Xσ_pre(X)} − Σ^{Yσ_pre(X)}."""
    pre, _, _ = ACTIVATIONS[settings.activations].resolved()
    return (inputs - targets).T @ pre(inputs) / len(inputs)


def _printed(settings: Structure, inputs: Tensor, G: Tensor) -> Tensor:
    if settings.branch_depth == 1:
        return printed_one_shortcut(inputs.T @ inputs / len(inputs), G, settings.units)
    if settings.branch_depth == 2:
        return printed_two_shortcut(G, SLOPES[settings.activations], settings.units)
    params = settings.units * settings.branch_depth * settings.width**2
    return torch.zeros(params, params, dtype=torch.float64)


def _two_shortcut_facts(eigenvalues: Tensor, G: Tensor, settings: Structure) -> dict[str, Tensor]:
    sizes = SLOPES[settings.activations] * torch.linalg.svdvals(G).repeat(settings.units * settings.width)
    copies = torch.cat([sizes, -sizes]).sort().values
    return {
        "copies_error": (eigenvalues - copies).abs().max() / copies.max(),
        "index": (eigenvalues < 0).double().mean(),
        "condition_number": eigenvalues.abs().max() / eigenvalues.abs().min(),
        "printed_condition_number": torch.tensor(printed_condition_number(G), dtype=torch.float64),
    }


def _taylor(function: Callable[[Tensor], Tensor], orders: int) -> list[Tensor]:
    """The derivatives of order 1 to `orders` at zero, by differentiating again and again."""
    found = []
    for _ in range(orders):
        function = torch.func.grad(function)
        found.append(function(torch.zeros((), dtype=torch.float64)))
    return found


def _with_random_signs(moments: SecondMoments, generator: torch.Generator) -> SecondMoments:
    """The moments of the same data with principal components of random signs: the paper gives no rule for them."""
    signs = torch.randint(2, (WIDTH,), generator=generator).double() * 2 - 1
    return SecondMoments(signs[:, None] * moments.inputs * signs, moments.cross * signs, moments.target_power)


def _zeros(params: int) -> Tensor:
    return torch.zeros(params, dtype=torch.float64)
