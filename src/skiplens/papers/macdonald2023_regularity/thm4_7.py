"""Theorem 4.7: λ(DF) above its lower bounds at parameters of many sizes, and the lemma behind the first layer."""

import math

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
from skiplens.papers.macdonald2023_regularity.common import LARGEST_SCALES, SCALES, RandomResidualNetwork, arrays
from skiplens.papers.macdonald2023_regularity.guaranteed import regularity, skip_bound
from skiplens.papers.statistics import Band, Readings, decide, decide_correction, exactly, over_seeds, slope, stacked
from skiplens.papers.study import Item, Judgement, Preset, claim, claims
from skiplens.plots.figure import Figure
from skiplens.sweeps.run import Run


class Points(statistics.ReplicateSettings):
    """Random data and parameters of several sizes."""

    points: int = option(4, "parameters of each size")


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


ROUNDING = 1e-6  # relative, of the smallest eigenvalues, which are down to 1e-10 of the largest


def _judge_bound(readings: Readings, bound: str) -> Judgement:
    """The smallest quotient of λ(DF) and a lower bound of it, both of which must be positive."""
    true, below = arrays(readings, "regular_points", "true", bound)
    ratio = (true / below).where(below > 0, -math.inf)
    sentence = "Smallest λ(DF) over its bound among all parameters drawn, of sizes 0.03 to 32; −∞ if a bound is 0."
    return decide(exactly(ratio.min()), Band(1 - ROUNDING, math.inf, ROUNDING), sentence)


@claim("Lemma B.4", "at least 0")
def _skip_blocks(readings: Readings) -> Judgement:
    """σ(Jf) is at least 1 − |Jg|."""
    slack = stacked(readings, "slack_of_skips", "regular_points").min()
    sentence = "Smallest σ(Jf) − (1 − |Jg|) among all blocks and parameters drawn."
    return decide(exactly(slack), Band(-ROUNDING, math.inf, ROUNDING), sentence)


@claim("Theorem 4.7", "decreasing")
def _not_uniform(readings: Readings) -> Judgement:
    """λ(DF) is not bounded below uniformly."""
    logarithms = stacked(readings, "true", "regular_points")[:, -LARGEST_SCALES:].log().mean(2)
    exponent = slope([math.log(scale) for scale in SCALES[-LARGEST_SCALES:]], logarithms)
    sentence = "Exponent with which λ(DF) changes with the size of the parameters, sizes 3 to 32."
    return decide(over_seeds(exponent), Band(-math.inf, 0.0), sentence)


@claim("Section 6", "above 0")
def _skips_help(readings: Readings) -> Judgement:
    """Skip connections improve the regularity of the loss."""
    true, chain = (found.log10()[:, len(SCALES) // 2] for found in arrays(readings, "regular_points", "true", "chain"))
    sentence = "Mean of log₁₀ λ(DF) with skips minus that of the same network without, parameters of size 1."
    return decide(over_seeds((true - chain).mean(1)), Band(0.0, math.inf), sentence)


@claim("Lemma B.5, Eq. 35", "at least 1")
def _first_layer(readings: Readings) -> Judgement:
    """σ(D aff) is at least σ(X) σ(DP)."""
    convolution, entries = arrays(readings, "first_layers", "convolution", "entry_normalised")
    sentence = (
        "σ(D aff) over σ(X) σ(DP). Printed: at least 1 for any parameterisation; a convolution has fewer parameters "
        "than entries, and fails. Right: with at least d₁·d₀ parameters (the smallest quotient of entry-normalised "
        "layers), or with λ in place of σ."
    )
    right = exactly(entries.min()), Band(1 - ROUNDING, math.inf, ROUNDING)
    return decide_correction((over_seeds(convolution), Band(1.0, math.inf)), right, sentence)


_ABOVE, _SUM = "λ(DF) over bound at least 1", "The sum of products of layers' λ is a lower bound of λ(DF)."
_POSITIVE = "λ(DF) > 0 for all parameters; here: at least σ(X)² σ(DP)² Π (1 − |Jg|)²."
_positive, _from_layers = claims(
    _judge_bound,
    ("positive", _POSITIVE, "Theorem 4.7", _ABOVE, "from_skips"),
    ("from_layers", _SUM, "Proposition 4.6, Eq. 12", _ABOVE, "from_layers"),
)
CLAIMS = (_positive, _not_uniform, _from_layers, _skip_blocks, _first_layer, _skips_help)


def draw(readings: Readings) -> tuple[Figure, ...]:
    """λ(DF), both bounds, and the network without skips."""
    names = ("λ(DF)", "Eq. 12, from the layers", "Theorem 4.7, from the skips", "λ(DF) without skips")
    found = arrays(readings, "regular_points", "true", "from_layers", "from_skips", "chain")
    curves = {name: values.log().mean(2).exp() for name, values in zip(names, found, strict=True)}
    marks = common.bundles(torch.tensor(SCALES, dtype=torch.float64), curves)
    caption = (
        "The smallest eigenvalue of DF DFᵀ (mean and range over draws) lies above both bounds at every "
        "size of the parameters, and is positive, but not uniformly so. Without skips it is much smaller."
    )
    words = "regularity", "Theorem 4.7: regularity over parameter space"
    return (common.figure(words, caption, ("size of the parameters", "smallest eigenvalue"), marks, "xy"),)


def runs(preset: Preset, seed: int) -> list[Run]:
    """Networks at random parameters, and first layers."""
    count = {"smoke": 16, "laptop": 20, "paper": 200}[preset]
    points = Points(points={"smoke": 2, "laptop": 4, "paper": 20}[preset])
    return [
        *statistics.replicated(regular_points, points, count, seed, cost=100.0),
        *statistics.replicated(first_layers, FirstLayer(), count, seed),
    ]


_TITLE = "regularity from skips around contracting branches"
_DEVIATIONS = (
    "The theorem gives no example: here the normalised residual network of theorem 5.1 with 6 features, 4 samples, "
    "layers of 5, 4 and 3 units and tanh.",
)
ITEM = Item("thm4_7", _TITLE, runs, CLAIMS, draw, statistics.raw_tables, _DEVIATIONS)
