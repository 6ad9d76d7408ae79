"""Theorem 4.7: λ(DF) above its lower bounds at parameters of many sizes, and the lemma behind the first layer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from skiplens.base.settings import option
from skiplens.jacobians.systems.affine import Affine, Convolution
from skiplens.jacobians.systems.elementwise import Residual
from skiplens.jacobians.systems.layer import Composition
from skiplens.jacobians.systems.parameterisation import EntryNormalised, Free, Parameterisation
from skiplens.linalg.singular_values import smallest_gram_eigenvalue, smallest_singular_value
from skiplens.papers import statistics
from skiplens.papers.macdonald2023_regularity import common
from skiplens.papers.macdonald2023_regularity.common import LARGEST_SCALES, SCALES, RandomResidualNetwork
from skiplens.papers.macdonald2023_regularity.regularity import regularity, skip_bound
from skiplens.papers.statistics import Band, decide, decide_correction, exactly, over_seeds, slope, stacked
from skiplens.papers.study import Claim, Item, Judgement, Preset
from skiplens.plots.figure import Figure
from skiplens.readings.reading import Measurement
from skiplens.sweeps.run import Run


@dataclass(frozen=True)
class Points(statistics.ReplicateSettings):
    """Random data and parameters of several sizes."""

    points: int = option(4, "parameters of each size")


@dataclass(frozen=True)
class FirstLayer(statistics.ReplicateSettings):
    """A convolution on one image, and an entry-normalised layer."""

    samples: int = option(3, "of the entry-normalised layer")


def regular_points(settings: Points) -> dict[str, Tensor]:
    """At each size (sizes, points): λ(DF), its bounds, the slack of lemma B.4, and λ(DF) without skips."""
    generator = settings.stream()
    network, data = RandomResidualNetwork().system(), common.random_data(generator)
    chain = Composition(tuple(layer.branch if isinstance(layer, Residual) else layer for layer in network.layers))
    rows = []
    for scale in SCALES:
        for theta in [common.random_parameters(network, scale, generator) for _ in range(settings.points)]:
            found = regularity(network, theta, data)
            gains = [(layer.smallest_gain, layer.branch_gain) for layer in found.layers]
            slack = min(smallest - skip_bound(branch) for smallest, branch in gains if branch is not None)
            without_skips = smallest_gram_eigenvalue(chain.parameter_derivative(theta, data))
            rows.append((found.true, found.from_layers, found.from_skips, slack, without_skips))
    names = ("true", "from_layers", "from_skips", "slack_of_skips", "chain")
    columns = torch.tensor(rows, dtype=torch.float64).reshape(len(SCALES), settings.points, len(names))
    return dict(zip(names, columns.unbind(-1), strict=True))


def first_layers(settings: FirstLayer) -> dict[str, Tensor]:
    """σ(D aff)/(σ(X) σ(DP)): with fewer parameters than entries (a convolution), and with one for each."""
    generator = settings.stream()
    convolution = Convolution(Free(1, 9), channels=1, image=(4, 4), window=(3, 3))
    cases: tuple[tuple[str, Parameterisation, int], ...] = (
        ("convolution", convolution, 1),
        ("entry_normalised", EntryNormalised(3, 6), settings.samples),
    )
    found = {}
    for name, parameterisation, samples in cases:
        data = torch.randn(parameterisation.inputs, samples, dtype=torch.float64, generator=generator)
        weights = torch.randn(parameterisation.parameters, dtype=torch.float64, generator=generator)
        whole = smallest_singular_value(Affine(parameterisation).parameter_derivative(weights, data))
        parts = smallest_singular_value(data) * smallest_singular_value(parameterisation.derivative(weights))
        found[name] = torch.tensor(whole / parts, dtype=torch.float64)
    return found


ROUNDING = 1e-6
"""Relative, of the smallest eigenvalues, which are down to 1e-10 of the largest."""


def judge_bound(readings: Sequence[Measurement], bound: str) -> Judgement:
    """The smallest quotient of λ(DF) and a lower bound of it, both of which must be positive."""
    true, below = (stacked(readings, name, "regular_points") for name in ("true", bound))
    ratio = (true / below).where(below > 0, -math.inf)
    sentence = "Smallest λ(DF) over its bound among all parameters drawn, of sizes 0.03 to 32; −∞ if a bound is 0."
    return decide(exactly(ratio.min()), Band(1 - ROUNDING, math.inf, ROUNDING), sentence)


def judge_skips(readings: Sequence[Measurement]) -> Judgement:
    """The smallest slack of lemma B.4."""
    slack = stacked(readings, "slack_of_skips", "regular_points").min()
    sentence = "Smallest σ(Jf) − (1 − |Jg|) among all blocks and parameters drawn."
    return decide(exactly(slack), Band(-ROUNDING, math.inf, ROUNDING), sentence)


def judge_uniformity(readings: Sequence[Measurement]) -> Judgement:
    """How λ(DF) falls with the size of the parameters."""
    logarithms = stacked(readings, "true", "regular_points")[:, -LARGEST_SCALES:].log().mean(2)
    exponent = slope([math.log(scale) for scale in SCALES[-LARGEST_SCALES:]], logarithms)
    sentence = "Exponent with which λ(DF) changes with the size of the parameters, sizes 3 to 32."
    return decide(over_seeds(exponent), Band(-math.inf, 0.0), sentence)


def judge_chain(readings: Sequence[Measurement]) -> Judgement:
    """How much larger λ(DF) is with skips."""
    true, chain = (stacked(readings, name, "regular_points")[:, len(SCALES) // 2] for name in ("true", "chain"))
    sentence = "Mean of log₁₀ λ(DF) with skips minus that of the same network without, parameters of size 1."
    return decide(over_seeds((true.log10() - chain.log10()).mean(1)), Band(0.0, math.inf), sentence)


def judge_first_layer(readings: Sequence[Measurement]) -> Judgement:
    """Lemma B.5 for a convolution, and for one parameter an entry."""
    convolution, entries = (stacked(readings, name, "first_layers") for name in ("convolution", "entry_normalised"))
    sentence = (
        "σ(D aff) over σ(X) σ(DP). Printed: at least 1 for any parameterisation; a convolution has fewer parameters "
        "than entries, and fails. Right: with at least d₁·d₀ parameters (the smallest quotient of entry-normalised "
        "layers), or with λ in place of σ."
    )
    return decide_correction(
        (over_seeds(convolution), Band(1.0, math.inf)),
        (exactly(entries.min()), Band(1 - ROUNDING, math.inf, ROUNDING)),
        sentence,
    )


CLAIMS = (
    Claim(
        "positive",
        "λ(DF) > 0 for all parameters; here: at least σ(X)² σ(DP)² Π (1 − |Jg|)².",
        "Theorem 4.7",
        "λ(DF) over bound at least 1",
        partial(judge_bound, bound="from_skips"),
    ),
    Claim("not_uniform", "λ(DF) is not bounded below uniformly.", "Theorem 4.7", "decreasing", judge_uniformity),
    Claim(
        "from_layers",
        "The sum of products of layers' λ is a lower bound of λ(DF).",
        "Proposition 4.6, Eq. 12",
        "λ(DF) over bound at least 1",
        partial(judge_bound, bound="from_layers"),
    ),
    Claim("skip_blocks", "σ(Jf) is at least 1 − |Jg|.", "Lemma B.4", "at least 0", judge_skips),
    Claim("first_layer", "σ(D aff) is at least σ(X) σ(DP).", "Lemma B.5, Eq. 35", "at least 1", judge_first_layer),
    Claim("skips_help", "Skip connections improve the regularity of the loss.", "Section 6", "above 0", judge_chain),
)


def draw_thm4_7(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """λ(DF), both bounds, and the network without skips."""
    names = {
        "λ(DF)": "true",
        "Eq. 12, from the layers": "from_layers",
        "Theorem 4.7, from the skips": "from_skips",
        "λ(DF) without skips": "chain",
    }
    curves = {name: stacked(readings, array, "regular_points").log().mean(2).exp() for name, array in names.items()}
    return (
        common.figure(
            ("regularity", "Theorem 4.7: regularity over parameter space"),
            "The smallest eigenvalue of DF DFᵀ (mean and range over draws) lies above both bounds at every "
            "size of the parameters, and is positive, but not uniformly so. Without skips it is much smaller.",
            ("size of the parameters", "smallest eigenvalue"),
            common.bundles(torch.tensor(SCALES, dtype=torch.float64), curves),
            "xy",
        ),
    )


def runs(preset: Preset, seed: int) -> list[Run]:
    """Networks at random parameters, and first layers."""
    count = {"smoke": 16, "laptop": 20, "paper": 200}[preset]
    points = Points(points={"smoke": 2, "laptop": 4, "paper": 20}[preset])
    return [
        *statistics.replicated(regular_points, points, count, seed, cost=lambda _: 100.0),
        *statistics.replicated(first_layers, FirstLayer(), count, seed),
    ]


ITEM = Item(
    "thm4_7",
    "regularity from skips around contracting branches",
    runs,
    CLAIMS,
    draw_thm4_7,
    statistics.raw_tables,
    (
        "The theorem gives no example: here the normalised residual network of theorem 5.1 with 6 features, 4 "
        "samples, layers of 5, 4 and 3 units and tanh.",
    ),
)
