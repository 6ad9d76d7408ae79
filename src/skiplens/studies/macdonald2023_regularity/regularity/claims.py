"""Theorem 4.7 with its lemmas, at every point that was drawn."""

import math
from collections.abc import Sequence
from functools import partial

from skiplens.readings import Measurement
from skiplens.studies.claim import Claim, Judgement
from skiplens.studies.macdonald2023_regularity.networks import SCALES
from skiplens.studies.selection import stacked
from skiplens.studies.statistics import Band, decide, decide_correction, exactly, over_seeds, slope

ROUNDING = 1e-6
"""Relative, of the smallest eigenvalues, which are down to 1e-10 of the largest."""

LARGEST_SCALES = 3
MIDDLE = len(SCALES) // 2


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
    true, chain = (stacked(readings, name, "regular_points")[:, MIDDLE] for name in ("true", "chain"))
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
