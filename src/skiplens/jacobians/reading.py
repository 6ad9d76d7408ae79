"""What the jacobians lens saw: singular values of each block, with and without its shortcut, and end to end."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from skiplens.base import Float, require_known
from skiplens.linalg.conditioning import condition_number
from skiplens.linalg.density import weighted_quantiles
from skiplens.readings.reading import Reading

FLOOR = 1e-6  # singular values below this count as zero, and as this in logarithms


@dataclass(frozen=True)
class SpectrumStatistics:
    """A set of singular values in numbers."""

    count: int
    smallest: float
    largest: float
    median: float
    rms: float  # root of the mean square
    mean_log10: float  # mean of log10 max(σ, 1e-6)
    above_one: float  # share above 1 (by more than 1e-6: rounding does not count): directions that are stretched
    near_zero: float  # share below 1e-6: directions that are lost
    at_one: float  # share within 1e-6 of 1: directions that pass as they are

    @property
    def condition_number(self) -> float:
        """Largest over smallest singular value; infinite where directions are lost."""
        return condition_number(self.largest, self.smallest, resolution=FLOOR)

    @property
    def log_volume(self) -> float:
        """Σ ln max(σ, 1e-6): logarithm of the factor by which volumes grow."""
        return self.count * self.mean_log10 * math.log(10)


class JacobianSpectrum(Reading, kind="jacobians"):
    """Singular values of input Jacobians.

    Attributes:
        singular_values: For each block by name, for spans of blocks (``"first -> last"``) and for ``"network"``: all
            singular values, or nodes of their density, descending.
        weights: The share of all singular values that each of them stands for.
        without_shortcut: The same for the branch of each block alone.
        without_shortcut_weights: Their shares.
        of_shortcut: The same for the shortcut of each block alone, where it was asked for.
        of_shortcut_weights: Their shares.
        counts: How many singular values there are, in the order of `singular_values`.
        methods: How they were found: "exact", "low rank" (exact too) or "lanczos" (their density).
        shortcuts: Kind of the shortcut of each block in `without_shortcut`.
        samples: Samples that were looked at.
        coupled: Whether Jacobians are those of the whole batch, whose samples depend on each other.
        readings: How many readings were averaged.
        notes: What a person should know before reading on.
    """

    singular_values: Mapping[str, Tensor]
    weights: Mapping[str, Tensor]
    without_shortcut: Mapping[str, Tensor] = field(default_factory=dict)
    without_shortcut_weights: Mapping[str, Tensor] = field(default_factory=dict)
    of_shortcut: Mapping[str, Tensor] = field(default_factory=dict)
    of_shortcut_weights: Mapping[str, Tensor] = field(default_factory=dict)
    counts: tuple[int, ...]
    methods: tuple[str, ...]
    shortcuts: tuple[str, ...] = ()
    samples: int
    coupled: bool
    readings: int = 1
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """What was measured, in order."""
        return tuple(self.singular_values)

    @property
    def blocks(self) -> tuple[str, ...]:
        """The residual blocks among them."""
        return tuple(self.without_shortcut) or tuple(n for n in self.names if n != "network" and " -> " not in n)

    def method(self, name: str) -> str:
        """How the singular values of `name` were found."""
        self._chosen(name, without_shortcut=False)  # refuses what was not measured
        return self.methods[self.names.index(name)]

    def statistics(self, name: str = "network", without_shortcut: bool = False) -> SpectrumStatistics:
        """The singular values of `name` in numbers; those of its branch alone if asked for."""
        values, weights = self._chosen(name, without_shortcut)
        values, shares = values.double(), weights.double() / weights.double().sum()
        seen = values[shares > 0]
        return SpectrumStatistics(
            count=self.counts[self.names.index(name)],
            smallest=float(seen[-1]),
            largest=float(seen[0]),
            median=float(weighted_quantiles(values, shares, torch.tensor([0.5]))),
            rms=float((shares @ values.square()).sqrt()),
            mean_log10=float(shares @ values.clamp_min(FLOOR).log10()),
            above_one=float(shares[values > 1 + FLOOR].sum()),
            near_zero=float(shares[values < FLOOR].sum()),
            at_one=float(shares[(values - 1).abs() < FLOOR].sum()),
        )

    def share_below(self, threshold: float, name: str = "network", without_shortcut: bool = False) -> float:
        """The share of singular values below a threshold; unlike means of logarithms a density tells it too."""
        values, shares = self._chosen(name, without_shortcut)
        return float(shares[values < threshold].sum())

    def quantiles(self, name: str, levels: Float[Tensor, " levels"]) -> Float[Tensor, " levels"]:
        """The singular values below which these shares of all lie."""
        return weighted_quantiles(*self._chosen(name, without_shortcut=False), levels)

    def histogram(self, name: str, edges: Float[Tensor, " edges"]) -> Float[Tensor, " bins"]:
        """The share of singular values in each bin; the last bin holds its upper edge too."""
        values, weights = self._chosen(name, without_shortcut=False)
        values, weights, edges = values.double(), weights.double(), edges.double()
        bins = torch.bucketize(values, edges, right=True) - 1
        bins = torch.where(values == edges[-1], len(edges) - 2, bins)
        inside = (bins >= 0) & (bins < len(edges) - 1)
        return weights.new_zeros(len(edges) - 1).index_add_(0, bins[inside], weights[inside])

    def _chosen(self, name: str, without_shortcut: bool) -> tuple[Tensor, Tensor]:
        """Values and shares of a part, or of its branch alone."""
        require_known(name, self.singular_values, f"{name!r} was not measured.")
        if not without_shortcut:
            return self.singular_values[name], self.weights[name]
        require_known(name, self.without_shortcut, f"The branch of {name!r} was not measured.")
        return self.without_shortcut[name], self.without_shortcut_weights[name]
