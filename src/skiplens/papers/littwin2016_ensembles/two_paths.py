"""Gradient steps on spin-glass losses: what drives the scales up (theorems 3 and 4)."""

import math
from dataclasses import dataclass

import torch
from scipy.optimize import brentq
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.randomness import Randomness
from skiplens.papers.littwin2016_ensembles.dynamics import (
    TwoPathGradients,
    branch_scale_slope,
    layer_scale_increment,
    spin_glass_depth,
)
from skiplens.papers.littwin2016_ensembles.settings import Descents, TwoPaths
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import Mixture
from skiplens.papers.littwin2016_ensembles.spin_glass.hamiltonian import SpinGlass, random_points

_ANGLES = 64
"""Of a great circle, among which a change of sign is looked for."""

_CIRCLES = 10
"""Looked at before another spin glass is drawn."""


def layer_steps(settings: TwoPaths) -> dict[str, Tensor]:
    """Growth of |λ| in one step over μ², for a layer that nothing skips and for one that the short paths skip.

    One row a loss: `unskipped` and `skipped` have a column for each learning rate, `…_predicted` is the leading order,
    `…_long_over_short` is ‖g_p‖/‖g_m‖. Each layer's hypothesis has a point of its own.
    """
    randomness, rows = Randomness(settings.seed).child(settings.key()), []
    for number in range(settings.losses):
        loss = _LayeredLoss.draw(settings, randomness.child(number))
        layers = {"unskipped": 0, "skipped": settings.long - 1}
        rows.append({f"{name}{of}": x for name, layer in layers.items() for of, x in loss.grown(layer).items()})
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def scale_steps(settings: TwoPaths) -> dict[str, Tensor]:
    """∂L/∂C after one step over μ, from points where it was 0; one row a loss, one column a learning rate.

    Beside it equation 25, the line printed as equation 45, ‖g_p‖/‖g_m‖ and the growth of ‖w‖² over μ²‖g‖².
    """
    randomness = Randomness(settings.seed).child(settings.key())
    rows = [_scale_step(settings, randomness.child(number)) for number in range(settings.losses)]
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def descents(settings: Descents) -> dict[str, Tensor]:
    """Scale C, mean path length and loss at each step, from a point where ∂L/∂C = 0."""
    generator = settings.stream()
    mixture = Mixture.of_network(settings.depth, settings.depth_ratio)
    glass, start = _Balance(mixture, settings.spins, _orders(mixture)).draw(generator)
    history = spin_glass_depth(glass, start, settings.learning_rate, settings.steps, settings.every)
    return {
        "step": history.steps,
        "weight_scale": history.weight_scale,
        "mean_length": history.mean_depth,
        "loss": history.losses,
        "drive": history.scale_drive,
    }


@dataclass(frozen=True, eq=False)
class _LayeredLoss:
    """Equation 21 with σ = 1: short paths times the scales of the first m layers, long ones times all p."""

    settings: TwoPaths
    scales: Tensor
    generator: torch.Generator

    @classmethod
    def draw(cls, settings: TwoPaths, randomness: Randomness) -> "_LayeredLoss":
        """Scales around ±1."""
        generator = randomness.torch()
        noise = torch.randn(settings.long, generator=generator, dtype=torch.float64)
        signs = torch.randint(2, (settings.long,), generator=generator) * 2 - 1
        return cls(settings, signs * (0.2 * noise).exp(), generator)

    def grown(self, layer: int) -> dict[str, Tensor]:
        """(|λ_new| − |λ|)/μ² at each rate, its leading order, ‖g‖² and ‖g_p‖/‖g_m‖, where ∂L/∂λ was 0."""
        skipped, scale = layer >= self.settings.short, self.scales[layer]
        glass, point = self._where_flat(skipped)
        gradients = self._gradients(glass, point)
        total = gradients.short + gradients.long
        steps = [
            ((scale - rate * self._slope(glass, point - rate * total, layer)).abs() - scale.abs()) / rate**2
            for rate in self.settings.rates
        ]
        return {
            "": torch.stack(steps),
            "_predicted": layer_scale_increment(gradients, float(scale), 1.0, skipped),
            "_squared_gradient": total.square().sum(),
            "_long_over_short": gradients.long.norm() / gradients.short.norm(),
        }

    def _where_flat(self, skipped: bool) -> tuple[SpinGlass, Tensor]:
        """A point with L_p = 0 (the layer is skipped by the short paths) or L_m + L_p = 0 (by none)."""
        short, long = self.settings.short, self.settings.long
        factors = torch.zeros(long, dtype=torch.float64)
        factors[-1] = self.scales.prod()
        if not skipped:
            factors[short - 1] = self.scales[:short].prod()
        return _Balance(_two_orders(self.settings), self.settings.spins, factors).draw(self.generator)

    def _parts(self, glass: SpinGlass, point: Tensor, scales: Tensor) -> Tensor:
        """L_m and L_p."""
        short, long = self.settings.short, self.settings.long
        energies = glass.energy_by_order(point[None])[0]
        return torch.stack([scales[:short].prod() * energies[short - 1], scales.prod() * energies[long - 1]])

    def _gradients(self, glass: SpinGlass, point: Tensor) -> TwoPathGradients:
        leaf = point.clone().requires_grad_()
        parts = self._parts(glass, leaf, self.scales)
        short, long = (torch.autograd.grad(part, leaf, retain_graph=True)[0] for part in parts)
        return TwoPathGradients(short, long)

    def _slope(self, glass: SpinGlass, point: Tensor, layer: int) -> Tensor:
        scales = self.scales.clone().requires_grad_()
        return torch.autograd.grad(self._parts(glass, point, scales).sum(), scales)[0][layer]


def _scale_step(settings: TwoPaths, randomness: Randomness) -> dict[str, Tensor]:
    generator = randomness.torch()
    mixture = _two_orders(settings)
    size = (0.3 * torch.randn((), generator=generator, dtype=torch.float64)).exp()
    glass, point = _Balance(mixture, settings.spins, _orders(mixture), float(size)).draw(generator)
    short, long = _gradients_by_order(glass, point, (settings.short, settings.long))
    g, m, p = short + long, settings.short, settings.long
    lengths = torch.tensor([m, p], dtype=torch.float64)
    after = [_scale_slope(glass, point - rate * g) / rate for rate in settings.rates]
    grown = [((point - rate * g).square().sum() - point.square().sum()) / rate**2 for rate in settings.rates]
    printed = -((m + p) * long.square().sum() + (m + p) * long @ short) / size
    return {
        "slope": torch.stack(after),
        "predicted": branch_scale_slope(torch.stack([short, long]), lengths, float(size), 1.0),
        "printed_as_45": printed,
        "long_over_short": long.norm() / short.norm(),
        "norm_growth": torch.stack(grown) / g.square().sum(),
        "opposed": _opposed_step(settings, generator),
    }


def opposed_share(short: int, long: int) -> float:
    """κ = ‖g_p‖/‖g_m‖ in the middle between m/p and 1, where opposed gradients drive C down."""
    return (1 + short / long) / 2


def _opposed_step(settings: TwoPaths, generator: torch.Generator) -> Tensor:
    """C ∂L/∂C over μ‖g_m‖² after one step at the smallest rate, from a point with g_p = −κ g_m.

    L_p = −κ (w·w₀/‖w₀‖²)^{p−1} g_m·w is homogeneous of degree p and has that gradient at w₀ if L_m(w₀) = 0.
    """
    m, p, rate = settings.short, settings.long, min(settings.rates)
    factors = torch.zeros(m, dtype=torch.float64)
    factors[-1] = 1.0
    glass, start = _Balance(Mixture.pure(m), settings.spins, factors).draw(generator)
    slope, kappa = glass.gradient(start[None])[0], opposed_share(m, p)

    def loss(point: Tensor) -> Tensor:
        along = point @ start / start.square().sum()
        return glass.energy(point[None])[0] - kappa * along ** (p - 1) * (slope @ point)

    moved = (start - rate * (1 - kappa) * slope).requires_grad_()
    return moved.detach() @ torch.autograd.grad(loss(moved), moved)[0] / (rate * slope.square().sum())


def _scale_slope(glass: SpinGlass, point: Tensor) -> Tensor:
    """∂L/∂C = w·∂L/∂w / C with C = ‖w‖/√Λ."""
    return point @ glass.gradient(point[None])[0] / (point.norm() / math.sqrt(glass.dimension))


def _gradients_by_order(glass: SpinGlass, point: Tensor, orders: tuple[int, ...]) -> list[Tensor]:
    leaf = point.clone().requires_grad_()
    parts = glass.energy_by_order(leaf[None])[0]
    return [torch.autograd.grad(parts[order - 1], leaf, retain_graph=True)[0] for order in orders]


def _two_orders(settings: TwoPaths) -> Mixture:
    weights = torch.zeros(settings.long, dtype=torch.float64)
    weights[[settings.short - 1, settings.long - 1]] = 1.0
    return Mixture(weights)


def _orders(mixture: Mixture) -> Tensor:
    return torch.arange(1, mixture.order + 1, dtype=torch.float64)


@dataclass(frozen=True)
class _Balance:
    """Where Σ factor_r L_r is to be 0: a mixture, a number of spins, and the size C of the weights."""

    mixture: Mixture
    spins: int
    factors: Float[Tensor, " orders"]
    size: float = 1.0

    def draw(self, generator: torch.Generator) -> tuple[SpinGlass, Float[Tensor, " spins"]]:
        """A spin glass and a point of it where the sum is 0; a glass whose sum has one sign is drawn again."""
        while True:
            glass = SpinGlass.sample(self.mixture, self.spins, generator)
            for _ in range(_CIRCLES):
                point = self._on_random_circle(glass, generator)
                if point is not None:
                    return glass, point

    def _on_random_circle(self, glass: SpinGlass, generator: torch.Generator) -> Tensor | None:
        first, second = (self.size * point for point in random_points(2, self.spins, generator))
        second = second - (first @ second) / first.square().sum() * first
        circle = _Circle(glass, self.factors, first, second * (first.norm() / second.norm()))
        angle = circle.zero()
        return None if angle is None else circle.at(torch.tensor([angle], dtype=torch.float64))[0]


class _Circle:
    """Σ factor_r L_r on a great circle."""

    def __init__(self, glass: SpinGlass, factors: Tensor, first: Tensor, second: Tensor) -> None:
        self.glass, self.factors, self.first, self.second = glass, factors, first, second

    def at(self, angles: Tensor) -> Tensor:
        return angles.cos()[:, None] * self.first + angles.sin()[:, None] * self.second

    def value(self, angles: Tensor) -> Tensor:
        return self.glass.energy_by_order(self.at(angles)) @ self.factors

    def zero(self) -> float | None:
        """An angle at which the sum changes sign, to rounding; none if it does not."""
        angles = torch.linspace(0, 2 * math.pi, _ANGLES + 1, dtype=torch.float64)
        values = self.value(angles)
        changes = (values[:-1] * values[1:] < 0).nonzero().flatten()
        if not len(changes):
            return None
        low, high = angles[changes[0]], angles[changes[0] + 1]
        return float(brentq(self._one, float(low), float(high), xtol=1e-15, rtol=1e-14))

    def _one(self, angle: float) -> float:
        return float(self.value(torch.tensor([angle], dtype=torch.float64)))
