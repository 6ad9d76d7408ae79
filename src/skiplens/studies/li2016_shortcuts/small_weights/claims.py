"""What theorem 1 and its lemmas say, and what the constructed networks show."""

import math
from collections.abc import Sequence

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.readings import Measurement
from skiplens.studies.claim import Claim, Judgement
from skiplens.studies.li2016_shortcuts.rounding import EQUAL, judge_equality
from skiplens.studies.selection import against, stacked, values
from skiplens.studies.statistics import Band, decide, decide_correction, over_seeds, slope
from skiplens.theory.small_weights import norm_bound

EXPONENT = 0.02
"""Tolerance of the exponent of a power law; steps are whole, so it is not exactly the one of the limit."""


def by_units(readings: Sequence[Measurement], name: str) -> tuple[list[int], Float[Tensor, "replicates depths"]]:
    """The numbers of units, and a number of the constructions (replicates, numbers of units)."""
    return against(readings, name, "units", "construction")


def _exponent(readings: Sequence[Measurement], name: str) -> Tensor:
    counts, found = by_units(readings, name)
    return slope([math.log(count) for count in counts], found.log())


def judge_fit(readings: Sequence[Measurement]) -> Judgement:
    """How far the outputs are from the labels."""
    _, errors = by_units(readings, "fit_error")
    return judge_equality(
        errors.amax(1), "Distance of the outputs from the labels, equation (3) evaluated with all matrices."
    )


def judge_norm_law(readings: Sequence[Measurement]) -> Judgement:
    """The exponent of the largest norm in the number of units."""
    sentence = (
        "Exponent of the largest Frobenius norm in the number of units R. (The n of equation (7) is R: the shortcut's "
        "length is 2 here at every depth.)"
    )
    return decide(over_seeds(_exponent(readings, "largest_norm")), Band.around(-0.5, EXPONENT), sentence)


def judge_norm_bound(readings: Sequence[Measurement]) -> Judgement:
    """The largest norm over the bound with its bracket under the root."""
    counts, norms = by_units(readings, "largest_norm")
    _, separations = by_units(readings, "separation")
    m = values(readings, "samples", "construction")[0]
    bounds = torch.tensor([[norm_bound(R, m, float(rho)) for R in counts] for rho in separations[:, 0]])
    sentence = (
        "Largest norm over √((8π m/(Rρ)) ((m − 1)/2 + 1/ρ)), worst depth. The printed bound has the bracket outside of "
        "the root, which is weaker and so holds too; from the paper's own lemmas the bracket belongs under it."
    )
    return decide(over_seeds(norms / bounds), Band(-math.inf, 1.0), sentence)


def judge_step(readings: Sequence[Measurement]) -> Judgement:
    """The exponent of the step length in the number of units."""
    found = over_seeds(_exponent(readings, "longest_step"))
    return decide_correction(
        (found, Band.around(0.0, EXPONENT)),
        (found, Band.around(-1.0, 2 * EXPONENT)),
        "Exponent of the longest step in the number of units. Printed: d ≥ O(m(ρm + 1)), the same at every depth. "
        "Right: d = Θ(m(ρm + 1)/R).",
    )


def judge_lemma1(readings: Sequence[Measurement]) -> Judgement:
    """Whether a unit moves its point and no other, with the printed norms."""
    errors = torch.stack([stacked(readings, name, "one_step") for name in ("error", "norm_error")], dim=1)
    return judge_equality(errors, "Equations (13) and (14), points as near to each other as the lemma allows.")


def judge_lemma2(readings: Sequence[Measurement]) -> Judgement:
    """Lengths of paths and numbers of units over their bounds."""
    _, lengths = by_units(readings, "longest_path")
    _, bounds = by_units(readings, "path_bound")
    counts, allowed = by_units(readings, "allowed_units")
    shares = torch.cat([lengths / bounds, torch.tensor(counts, dtype=torch.float64) / allowed], dim=1)
    sentence = "Longest path over π(1 + ρ(m − 1)/2), and units over s of equation (19); the largest share."
    return decide(over_seeds(shares), Band(-math.inf, 1.0), sentence)


def judge_shared_labels(readings: Sequence[Measurement]) -> Judgement:
    """The separation of samples that share labels, and what surrogate targets reach."""
    distances = stacked(readings, "separation", "shared_labels")
    loss, bound = (stacked(readings, name, "shared_labels") for name in ("loss", "loss_bound"))
    smallest = float(stacked(readings, "surrogate_separation", "shared_labels").min())
    m, d = (values(readings, name, "shared_labels")[0] for name in ("samples", "width"))
    return decide_correction(
        (over_seeds(distances), Band(torch.finfo(torch.float64).eps, math.inf)),
        (over_seeds(loss / bound), Band(-math.inf, 1.0)),
        f"Printed: a distance ρ > 0 between all samples and labels; with {m} samples and {d} labels ρ = 0, and "
        "networks with small weights are injective, so none fits. Right: targets within ε of the labels can be fitted, "
        f"with a loss of at most ε²/2 (the number: loss over ε²/2; ρ ≥ {smallest:.2g} then).",
    )


CLAIMS = (
    Claim(
        "fit",
        "A network of the form (3) maps every sample to its label.",
        "Theorem 1",
        f"global minimum: {EQUAL}",
        judge_fit,
    ),
    Claim(
        "norm_law",
        "Its weights have norms O(√(1/n)), so deeper networks have solutions nearer to zero.",
        "Eq. 7",
        "exponent -1/2",
        judge_norm_law,
    ),
    Claim(
        "norm_bound",
        "All norms are at most O(√(m/(nρ)) (m + 1/ρ)).",
        "Theorem 1, Eqs. 6 and 20",
        "below the bound",
        judge_norm_bound,
    ),
    Claim(
        "step",
        "By lemma 2, the steps can have the length d ≥ O(m(ρm + 1)).",
        "Proof of Theorem 1",
        "exponent 0 in the depth",
        judge_step,
    ),
    Claim(
        "lemma1",
        "A unit with norms √(8d)/ρ moves one column by d and keeps the others.",
        "Lemma 1, Eqs. 13 to 17",
        f"equality: {EQUAL}",
        judge_lemma1,
    ),
    Claim(
        "lemma2",
        "Paths that keep the columns apart are at most (ρ(m − 1)/2 + 1)π long and take at most s units.",
        "Lemma 2, Eq. 19",
        "below the bounds",
        judge_lemma2,
    ),
    Claim(
        "shared_labels",
        "There is a minimum distance ρ between all samples and all labels; a little noise gives it.",
        "Assumption 2",
        "ρ > 0",
        judge_shared_labels,
    ),
)
