"""Figure 4: condition numbers of the Hessians of linear networks at their initial weights, against depth."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.settings import option
from skiplens.papers import statistics
from skiplens.papers.li2016_shortcuts import common
from skiplens.papers.li2016_shortcuts.common import FamilyName, Source
from skiplens.papers.li2016_shortcuts.hessian import linear_hessian, spectrum_of
from skiplens.papers.statistics import Band, Readings, against, curve, decide, figure, over_seeds, raw_tables, stacked
from skiplens.papers.study import Item, Judgement, Preset, claim, claims
from skiplens.plots.figure import Figure, Mark
from skiplens.sweeps.run import Run

FAMILY_NAMES: tuple[FamilyName, ...] = ("xavier", "orthogonal", "1-shortcut", "2-shortcut")


@dataclass(frozen=True)
class InitialSpectrum(statistics.ReplicateSettings):
    """The Hessian's spectrum of a linear network at its initial weights."""

    family: FamilyName = option("2-shortcut", "initialisation and shortcuts")
    depth: int = option(2, "weight matrices (D)")
    source: Source = option("mnist", "digits: the embedded ones or all of MNIST")


# Replicates, depths and digits.
SIZES: dict[Preset, tuple[int, tuple[int, ...], Source]] = {
    "smoke": (10, (2, 4, 8), "sample"),
    "laptop": (16, (2, 4, 8, 16), "mnist"),
    "paper": (20, (2, 4, 8, 16, 32, 64, 96), "mnist"),
}


def runs(preset: Preset, seed: int) -> list[Run]:
    """Four kinds of networks at several depths."""
    replicates, depths, source = SIZES[preset]
    base = InitialSpectrum(source=source)

    def cost(settings: InitialSpectrum) -> float:  # of the eigenvalues of a matrix with this many rows
        return (settings.depth / 16) ** 3

    return statistics.replicated(initial_spectrum, base, replicates, seed, cost, family=FAMILY_NAMES, depth=depths)


def initial_spectrum(settings: InitialSpectrum) -> dict[str, Tensor]:
    """Largest, 10 % quantile and condition number of the |eigenvalues|, the index, and equation (9) for these data."""
    moments = common.digit_moments(settings.source)
    family = common.FAMILIES[settings.family]
    spectrum = spectrum_of(linear_hessian(family.units(family.start(settings.depth, settings.stream())), moments))
    return common.scalars(
        largest=spectrum.largest_absolute,
        tenth=spectrum.absolute_quantile(0.1),
        condition_number=spectrum.condition_number,
        full_condition_number=spectrum.full_condition_number,
        index=spectrum.index,
        zero_condition_number=common.printed_condition_number(moments.inputs - moments.cross),
    )


FIRST, DOUBLING = 8, Band(1.9, 2.3)  # when the depth doubles from 8 on: the factor if growth is linear
LIMIT = 1e13  # beyond it the 10 % quantile is rounding: float64 resolves about 1e-15 of the largest eigenvalue


def log_conditions(readings: Readings, family: str) -> tuple[list[int], Float[Tensor, "replicates depths"]]:
    """The depths, and log10 of the condition numbers (replicates, depths)."""
    depths, found = against(readings, "condition_number", "depth", initial_spectrum, family=family)
    return depths, found.clamp(max=LIMIT).log10()


@claim("Figure 4", "as at zero, Eq. 9")
def _two_shortcut(readings: Readings) -> Judgement:
    """2-shortcut linear networks have constant condition numbers."""
    _, found = log_conditions(readings, "2-shortcut")
    expected = math.log10(float(stacked(readings, "zero_condition_number", initial_spectrum)[0]))
    sentence = f"log10 of the condition number minus that of equation (9), {expected:.4f}; worst depth."
    return decide(over_seeds(found - expected), Band.around(0.0, 0.005), sentence)


def linear_growth(readings: Readings, family: str) -> Judgement:
    """How the condition number grows when the depth doubles."""
    depths, found = log_conditions(readings, family)
    doublings = [D >= FIRST for D in depths[:-1]]
    if not any(doublings):
        return Judgement("not attempted", explanation=f"No network is deeper than {FIRST}. Use a larger preset.")
    factors = (found.diff(dim=1) * math.log(10)).exp()[:, doublings]
    sentence = (
        f"Factor of the condition number for each doubling of the depth from {FIRST} on; worst depth. Any factor "
        f"that stays above 1 goes to infinity; we ask for linear growth, {DOUBLING.low:g} to {DOUBLING.high:g}."
    )
    return decide(over_seeds(factors), DOUBLING, sentence)


@claim("Figure 4, Section 5.1", "→ ∞: log10 a layer > 0")
def _xavier(readings: Readings) -> Judgement:
    """With Xavier initialisation the initial condition number goes to infinity with depth."""
    depths, found = log_conditions(readings, "xavier")
    chosen = [D >= 4 for D in depths]
    per_layer = found[:, chosen] / torch.tensor(depths, dtype=torch.float64)[chosen]
    sentence = (
        f"log10 of the condition number over the depth, from depth 4 on; smallest. (Above {LIMIT:g} it is rounding.) "
        "We ask for at least 0.3."
    )
    return decide(over_seeds(per_layer), Band(0.3, math.inf), sentence)


@claim("Section 5.1", "> 0")
def _orthogonal_slower(readings: Readings) -> Judgement:
    """The condition number grows slower with orthogonal than with Xavier initialisation."""
    orthogonal, xavier = (log_conditions(readings, family)[1] for family in ("orthogonal", "xavier"))
    sentence = "log10 of Xavier's condition number minus that of orthogonal networks; smallest over the depths."
    return decide(over_seeds(xavier - orthogonal), Band(0.0, math.inf), sentence)


@claim("Section 5", "difference 0")
def _one_shortcut_like_orthogonal(readings: Readings) -> Judgement:
    """1-shortcut networks are similar to linear networks with orthogonal initialisation."""
    orthogonal, shortcut = (log_conditions(readings, family)[1] for family in ("orthogonal", "1-shortcut"))
    sentence = "log10 of the 1-shortcut networks' condition number minus that of orthogonal ones; worst depth."
    return decide(over_seeds(shortcut - orthogonal), Band.around(0.0, 0.1), sentence)


_ORTHOGONAL = "With orthogonal initialisation the initial condition number goes to infinity with depth."
_UNBOUNDED = "The condition number of 1-shortcut networks grows unboundedly with depth."
_GROWING = claims(
    linear_growth,
    ("orthogonal", _ORTHOGONAL, "Figure 4, Section 5.1", "→ ∞: factor > 1 a doubling", "orthogonal"),
    ("one_shortcut", _UNBOUNDED, "Section 2", "→ ∞: factor > 1 a doubling", "1-shortcut"),
)
CLAIMS = (_two_shortcut, *_GROWING, _xavier, _orthogonal_slower, _one_shortcut_like_orthogonal)


def figures(readings: Readings) -> tuple[Figure, ...]:
    """One curve a kind of network."""
    marks: list[Mark] = []
    for number, family in enumerate(FAMILY_NAMES):
        marks += curve(*log_conditions(readings, family), family, number)
    words = ("initial_condition_numbers", "Figure 4: initial condition numbers of linear networks")
    caption = (
        "2-shortcut networks have the same condition number at every depth. It grows linearly for 1-shortcut networks "
        "and orthogonal initialisation, and exponentially for Xavier's, up to what float64 can tell. Bands are one "
        "standard deviation."
    )
    return (figure(words, caption, ("depth (weight matrices)", "log10(|λ|max / |λ|(0.1))"), marks),)


_DEVIATIONS = (
    "The paper gives no depths for figure 4: here 2, 4, 8, … matrices, up to 8 (smoke), 16 (laptop) or 96 (paper).",
    "The paper has 10 runs of each network, here are 10 (smoke), 16 (laptop) or 20 (paper).",
    f"Condition numbers above {LIMIT:g} are shown as {LIMIT:g}: float64 cannot tell them from infinite ones.",
    "3-shortcut networks are left out: at zero their Hessian is the zero matrix.",
    common.DEPTH,
    common.QUANTILE,
    common.SIGNS,
    common.SMOKE_IMAGES,
)

ITEMS = (Item("fig4", "initial condition numbers against depth", runs, CLAIMS, figures, raw_tables, _DEVIATIONS),)
