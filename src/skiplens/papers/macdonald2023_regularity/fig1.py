"""Figure 1: singular values of A and of I + A, A a layer at PyTorch's default initialisation, and their limits."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError, option, refuse_if
from skiplens.papers import statistics
from skiplens.papers.macdonald2023_regularity.common import figure, histogram
from skiplens.papers.statistics import Band, Readings, decide, over_seeds, stacked
from skiplens.papers.study import Item, Judgement, Preset, claim, claims
from skiplens.plots.figure import Figure, Line, Mark, colour, numbers
from skiplens.sweeps.run import Run


class LinearLayer(statistics.ReplicateSettings):
    """A random matrix whose entries are uniform between ±1/√width."""

    width: int = option(500, "rows and columns")


def skip_spectra(settings: LinearLayer) -> dict[str, Tensor]:
    """Singular values, descending: of A (`chain`) and of I + A (`skip`)."""
    n = settings.width
    A = (2 * torch.rand(n, n, dtype=torch.float64, generator=settings.stream()) - 1) / n**0.5
    I_plus_A = torch.eye(n, dtype=torch.float64) + A
    return {"chain": torch.linalg.svdvals(A), "skip": torch.linalg.svdvals(I_plus_A)}


@dataclass(frozen=True)
class SingularValueLaw:
    """The limiting law of the singular values of A, or of I + A.

    Examples:
        >>> round(SingularValueLaw(scale=0.5, has_skip=True).mean_of(lambda sigma: sigma), 6)
        1.0625
    """

    scale: float
    has_skip: bool = True

    def __post_init__(self) -> None:
        """Refuse a matrix without noise."""
        if not 0 < self.scale < math.inf:
            raise InvalidInputError(f"scale is {self.scale}; a positive number was wanted: entries have scale²/n.")

    @property
    def support(self) -> tuple[float, float]:
        """Smallest and largest singular value."""
        s = self.scale
        if not self.has_skip:
            return 0.0, 2 * s
        return (_edge(s, -1) if s < 1 else 0.0), _edge(s, 1)

    def density(self, sigma: Float[Tensor, " points"]) -> Float[Tensor, " points"]:
        """The density at some singular values, zero outside of the support."""
        z, s = sigma.double(), self.scale
        if not self.has_skip:
            return (4 * s * s - z.square()).clamp_min(0).sqrt() / (math.pi * s * s) * (z >= 0)
        # (δ₁ + δ₋₁)/2 ⊞ semicircle: G = ω/(ω² − 1) with ω³ − z ω² + (s² − 1) ω + z = 0
        companion = torch.zeros(*z.shape, 3, 3, dtype=torch.float64, device=z.device)
        companion[..., 1, 0] = companion[..., 2, 1] = 1
        companion[..., 0, 2], companion[..., 1, 2], companion[..., 2, 2] = -z, 1 - s * s, z
        omega = torch.linalg.eigvals(companion)
        G = omega / (omega.square() - 1)
        return -2 / math.pi * G.imag.min(-1).values * (z >= 0)

    def mean_of(self, function: Callable[[Tensor], Tensor], above: float = 0.0) -> float:
        """The mean of a function of the singular values, of those above a number only if one is given."""
        low, high = self.support
        middle, half = (low + high) / 2, (high - low) / 2
        start = math.asin(max(-1.0, min(1.0, (above - middle) / half)))
        nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(400))
        angle = (start + math.pi / 2) / 2 + (math.pi / 2 - start) / 2 * nodes
        # the square roots at the edges are smooth in the angle, so the quadrature is exact to rounding for smooth means
        sigma = middle + half * angle.sin()
        heights = self.density(sigma) * function(sigma) * half * angle.cos()
        return float((heights * weights).sum() * (math.pi / 2 - start) / 2)

    def share_above(self, sigma: float) -> float:
        """The share of singular values above a number."""
        return self.mean_of(torch.ones_like, above=sigma)

    def quantile(self, share: float) -> float:
        """The number below which a share of the singular values lies."""
        refuse_if(not 0 < share < 1, f"share is {share}; a number between 0 and 1 was wanted.")
        return float(scipy.optimize.brentq(lambda x: 1 - share - self.share_above(x), *self.support, xtol=1e-14))


def _edge(s: float, sign: int) -> float:
    """Where dz/dω = 0, with v = ω²."""
    v = (2 + s * s + sign * s * math.sqrt(8 + s * s)) / 2
    return math.sqrt(v) * abs(1 + s * s / (v - 1))


LAWS = {name: SingularValueLaw(math.sqrt(1 / 3), has_skip=name == "skip") for name in ("chain", "skip")}
"""Entries of PyTorch's linear layers have variance scale²/n with scale² = 1/3."""

DEVIATIONS = {"chain": (0.0003, 0.004, 0.0016), "skip": (0.0010, 0.0013, 0.0021)}
"""Standard deviations over draws at n = 500 of the mean, the mean logarithm and the median."""

DEVIATIONS_ALLOWED = 5


@claim("Figure 1", "above 0")
def _shift(readings: Readings) -> Judgement:
    """In the linear setting a skip connection shifts the singular value distribution upwards."""
    shares = torch.tensor((0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99), dtype=torch.float64)
    chain, skip = (stacked(readings, name).quantile(shares, dim=1).T for name in ("chain", "skip"))
    sentence = "Quantiles (1 % to 99 %) of the singular values of I + A minus those of A; the smallest difference."
    return decide(over_seeds(skip - chain), Band(0.0, math.inf), sentence)


def _judge_law(readings: Readings, name: str) -> Judgement:
    """Mean, mean logarithm and median against the limiting law, in units of the tolerance."""
    values = stacked(readings, name)
    found = torch.stack([values.mean(1), values.log().mean(1), values.quantile(0.5, dim=1)], dim=1)
    tolerances = torch.tensor(DEVIATIONS[name], dtype=torch.float64) * DEVIATIONS_ALLOWED
    sentence = (
        "Mean, mean logarithm and median of the singular values minus those of the limit of infinite width, over the "
        f"tolerance of {DEVIATIONS_ALLOWED} standard deviations of a draw; the farthest."
    )
    return decide(over_seeds((found - limits(name)) / tolerances), Band.around(0.0, 1.0), sentence)


def limits(name: str) -> Tensor:
    """Mean, mean logarithm and median of the limiting law."""
    law = LAWS[name]
    values = (law.mean_of(lambda x: x), law.mean_of(torch.log), law.quantile(0.5))
    return torch.tensor(values, dtype=torch.float64)


_QUARTER_CIRCLE = "The histogram of A (here: that of the quarter-circle law of radius 2/√3)."
_CONVOLUTION = "The histogram of I + A (here: that of the free convolution with ±1, from 0.289 to 1.886)."
CLAIMS = (
    _shift,
    *claims(
        _judge_law,
        ("without_skip", _QUARTER_CIRCLE, "Figure 1", "within 5 standard deviations", "chain"),
        ("with_skip", _CONVOLUTION, "Figure 1", "within 5 standard deviations", "skip"),
    ),
)


def draw(readings: Readings) -> tuple[Figure, ...]:
    """The singular values of A and of I + A."""
    edges, grid = (torch.linspace(0, 2, points, dtype=torch.float64) for points in (31, 401))
    marks: list[Mark] = []
    for index, (name, title) in enumerate((("chain", "A"), ("skip", "I + A"))):
        marks += histogram(stacked(readings, name), edges, title, colour(index))
        marks.append(Line(numbers(grid), numbers(LAWS[name].density(grid)), f"{title}, limit", True, colour(index)))
    width = readings[0].setting("width")
    words = "singular_values", f"Figure 1: singular values of a linear layer, {width}×{width}"
    caption = (
        "A skip around a layer at PyTorch's default initialisation moves its singular values upwards. Histograms are "
        f"means over {len(readings)} draws with standard errors, dashed lines the limits of infinite width."
    )
    return (figure(words, caption, ("singular value", "density"), marks),)


def runs(preset: Preset, seed: int) -> list[Run]:
    """One matrix a run."""
    replicates = {"smoke": 12, "laptop": 40, "paper": 200}[preset]
    return statistics.replicated(skip_spectra, LinearLayer(), replicates, seed)


_TITLE = "singular values of a random linear layer with and without a skip"
_DEVIATIONS = (
    "The paper does not say how A is drawn: here as PyTorch initialises a 500×500 linear layer, drawn again for "
    "several seeds.",
)
ITEM = Item("fig1", _TITLE, runs, CLAIMS, draw, statistics.raw_tables, _DEVIATIONS)
