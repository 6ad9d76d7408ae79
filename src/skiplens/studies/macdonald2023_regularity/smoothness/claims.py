"""Theorem 4.5: what is smooth everywhere, and what is not."""

import math
from collections.abc import Sequence

import torch

from skiplens.core.axes import Tensor
from skiplens.readings import Measurement
from skiplens.studies.claim import Claim, Judgement
from skiplens.studies.macdonald2023_regularity.networks import SCALES
from skiplens.studies.macdonald2023_regularity.smoothness.measure import GAPS, ROW_NORMS
from skiplens.studies.selection import stacked
from skiplens.studies.statistics import Band, decide, decide_correction, exactly, over_seeds, slope

ROUNDING = 1e-9
BOUNDED = 0.05
"""An exponent within this of 0 says that a norm does not grow."""

LARGEST_SCALES = 3


def judge_bounded(readings: Sequence[Measurement]) -> Judgement:
    """The largest Hessian norm over the certified constant."""
    found = torch.cat(
        [stacked(readings, "normalised", "smooth_hessians"), stacked(readings, "roughest", "smooth_hessians")[:, None]],
        dim=1,
    )
    ratio = found / stacked(readings, "certified", "smooth_hessians")[:, None]
    sentence = (
        "Largest |H| over the certified β, normalised network: random parameters of sizes 0.03 to 32 and an ascent on "
        "|H|; no point may exceed it."
    )
    return decide(exactly(ratio.max()), Band(-math.inf, 1 + ROUNDING, ROUNDING), sentence)


def judge_plain(readings: Sequence[Measurement]) -> Judgement:
    """How the Hessian of the network without normalisation grows."""
    exponent = _exponent(stacked(readings, "plain", "smooth_hessians")[:, -LARGEST_SCALES:], SCALES[-LARGEST_SCALES:])
    sentence = "Exponent with which |H| grows with the size of the parameters, the same network without normalisation."
    return decide(over_seeds(exponent), Band(0.0, math.inf), sentence)


def judge_activation(readings: Sequence[Measurement]) -> Judgement:
    """How the difference quotients of two slopes behave near 0."""
    root, softplus = (_exponent(stacked(readings, name, "slope_quotients"), GAPS) for name in ("root", "softplus"))
    sentence = (
        "Exponent in h of |φ'(h) − φ'(0)|/h. Printed: φ continuously differentiable suffices; (2/3)|x|^(3/2) is, and "
        "its exponent −1/2 says that the slope is not Lipschitz. Right: the derivative must be locally Lipschitz, as "
        "that of softplus (exponent 0)."
    )
    band = Band.around(0.0, BOUNDED)
    return decide_correction((exactly(root[:1]), band), (exactly(softplus[:1]), band), sentence)


def judge_batch_norm(readings: Sequence[Measurement]) -> Judgement:
    """How J(bn ∘ aff) grows with the affine map, with few samples and with many."""
    few, many, normalised = (
        _exponent(stacked(readings, name, "batch_norm_gains")[:, 1:], ROW_NORMS[1:])
        for name in ("few", "many", "normalised")
    )
    sentence = (
        "Exponent with which |J(bn ∘ aff)| grows with |A|. Printed: bounded for generic data. With as many samples as "
        "features the covariance is always singular, and the exponent is 1. Right: bounded with more samples than "
        "features, or behind a normalised affine map."
    )
    band = Band.around(0.0, BOUNDED)
    return decide_correction(
        (over_seeds(few), band), (over_seeds(torch.stack([many, normalised], dim=1)), band), sentence
    )


def judge_entry(readings: Sequence[Measurement]) -> Judgement:
    """The printed and the right second derivative against automatic differentiation."""
    true = stacked(readings, "differentiated", "entry_curvatures")
    printed, corrected = (
        (stacked(readings, name, "entry_curvatures") - true).abs().amax(1) / true.abs().amax(1)
        for name in ("printed", "corrected")
    )
    sentence = (
        "Relative error of the second derivative of an entry-normalised matrix. Printed: −3ε w (ε + w²)^(−3/2). Right: "
        "the exponent is −5/2."
    )
    band = Band.around(0.0, ROUNDING)
    return decide_correction((over_seeds(printed), band), (exactly(corrected.max()), band), sentence)


def _exponent(values: Tensor, places: Sequence[float]) -> Tensor:
    """The exponent of each row as a power of the places."""
    return slope([math.log(place) for place in places], values.log())


CLAIMS = (
    Claim(
        "bounded",
        "The loss of a network of normalised layers has globally Lipschitz gradients.",
        "Theorem 4.5",
        "|H| at most β",
        judge_bounded,
    ),
    Claim(
        "plain",
        "Standard affine layers are suited to bounded sets of parameters only.",
        "Section 4.1",
        "|H| grows",
        judge_plain,
    ),
    Claim(
        "activation",
        "Continuously differentiable nonlinearities meet the hypotheses.",
        "Theorem 4.5 (1)",
        "bounded quotients",
        judge_activation,
    ),
    Claim(
        "batch_norm",
        "Batch norm after an affine map meets the hypotheses on generic data.",
        "Section 4.1, after Theorem 4.5",
        "exponent 0",
        judge_batch_norm,
    ),
    Claim(
        "entry_curvature",
        "The second derivative of entry normalisation.",
        "Lemma B.3, Eq. 33",
        "error 0",
        judge_entry,
    ),
)
