"""What theorem 2 and the remarks around it say, and what Hessians at zero show."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from skiplens.papers.li2016_shortcuts.common import EQUAL, QUANTILE, ROUNDING, SMOKE_IMAGES, judge_equality
from skiplens.papers.li2016_shortcuts.zero_point import RECTIFIED_DEPTHS, UNITS, runs
from skiplens.papers.statistics import (
    Band,
    against,
    curve,
    decide,
    decide_correction,
    over_seeds,
    raw_tables,
    stacked,
    values,
)
from skiplens.papers.study import Claim, Item, Judgement
from skiplens.plots.figure import Figure, Heat, Mark, numbers
from skiplens.readings.reading import Measurement

DOUBLING = Band(1.9, 2.3)
"""Of a condition number that grows linearly, when the depth doubles from 8 on."""

EXPONENTIAL = Band(1.5, math.inf)
"""Growth of the logarithm in one doubling over that in the doubling before: 2 if exponential, 1 if a power law."""

INVARIANT = 0.1
"""How much the mean condition number beside zero may change with depth, relatively."""

CONVENTION = 0.05
"""How far from the condition number of the slope-1/2 convention still agrees with it, relatively."""


def _structure(readings: Sequence[Measurement], name: str, branch_depth: int) -> Tensor:
    """A number of all networks on random data with this shortcut's length, (replicates, networks)."""
    kinds = values(readings, "activations", "structure", branch_depth=branch_depth)
    parts = [
        against(readings, name, "units", "structure", branch_depth=branch_depth, activations=kind)[1] for kind in kinds
    ]
    return torch.cat(parts, dim=1)


def judge_stationary(readings: Sequence[Measurement]) -> Judgement:
    """Lower derivatives over the n-th."""
    shares = []
    for n in values(readings, "branch_depth", "derivatives"):
        orders = stacked(readings, "derivative", "derivatives", branch_depth=n)
        shares.append((orders[:, :-1] / orders[:, -1:]).abs())
    sentence = "Derivatives of order 1 to n − 1 along random directions over that of order n, for n = 2, 3, 4."
    return judge_equality(torch.cat(shares, dim=1), sentence)


def judge_zero_hessian(readings: Sequence[Measurement]) -> Judgement:
    """The Hessian with three matrices a unit."""
    return judge_equality(_structure(readings, "error", 3), "Entries of the Hessian at zero for n = 3.")


def judge_two_shortcut(readings: Sequence[Measurement]) -> Judgement:
    """The Hessian with two matrices a unit, linear and with activations."""
    sentence = "Hessian by automatic differentiation against equations (8) and (25), linear and with activations."
    return judge_equality(_structure(readings, "error", 2), sentence)


def judge_condition_number(readings: Sequence[Measurement]) -> Judgement:
    """The condition number at several depths against equation (9)."""
    found, printed = (
        torch.cat(
            [_structure(readings, name, 2), against(readings, full, "depth", "digit_spectrum", branch_depth=2)[1]], 1
        )
        for name, full in (("condition_number", "full_condition_number"), ("printed_condition_number",) * 2)
    )
    sentence = "Condition number at every depth against equation (9), random data and digits."
    return judge_equality(found / printed - 1, sentence)


def judge_saddle(readings: Sequence[Measurement]) -> Judgement:
    """The share of negative eigenvalues."""
    sentence = "Share of negative eigenvalues of the Hessian at zero, n = 2, random data: half of them."
    return decide(over_seeds(_structure(readings, "index", 2)), Band(ROUNDING, math.inf), sentence)


def judge_copies(readings: Sequence[Measurement]) -> Judgement:
    """All eigenvalues against copies of the singular values."""
    sentence = (
        "All eigenvalues against R copies of ±√eigs(AᵀA); AᵀA has each of its d distinct ones d times, so each of "
        "±σ(G) occurs R d times."
    )
    return judge_equality(_structure(readings, "copies_error", 2), sentence)


def judge_one_shortcut(readings: Sequence[Measurement]) -> Judgement:
    """The Hessian with one matrix a unit."""
    sentence = "Hessian by automatic differentiation against equations (10), (29) and (32)."
    return judge_equality(_structure(readings, "error", 1), sentence)


def judge_local_minimum(readings: Sequence[Measurement]) -> Judgement:
    """Whether zero is a minimum."""
    found = over_seeds(_structure(readings, "index", 2))
    return decide_correction(
        (found, Band.around(0.0, ROUNDING)),
        (found, Band.around(0.5, ROUNDING)),
        "Share of negative eigenvalues at zero, n = 2. Printed: a spurious local minimum, so none. Right (theorem 2): "
        "a strict saddle, half of the eigenvalues are negative.",
    )


def judge_explosion(readings: Sequence[Measurement]) -> Judgement:
    """How the condition number of 1-shortcut networks grows."""
    depths, found = against(readings, "condition_number", "depth", "digit_spectrum", branch_depth=1)
    doublings = found.log().diff(dim=1)
    return decide_correction(
        (over_seeds(doublings[:, -1] / doublings[:, -2]), EXPONENTIAL),
        (over_seeds(doublings[:, -1].exp()), DOUBLING),
        f"Condition number on digits from depth {depths[-2]} to {depths[-1]}, one matrix a unit: the factor. Printed: "
        "it explodes, by a theory of block-Toeplitz matrices whose blocks decay. Right: these blocks are constant, and "
        "it grows linearly: twice the depth, twice the number.",
    )


def judge_biases(readings: Sequence[Measurement]) -> Judgement:
    """The condition number of the network with biases."""
    _, smallest = against(readings, "smallest_share", "units", "biased")
    _, rest = against(readings, "condition_of_rest", "units", "biased")
    return decide_correction(
        (over_seeds(smallest), Band(ROUNDING, math.inf)),
        (over_seeds(rest / rest[:, :1] - 1), Band.around(0.0, ROUNDING)),
        "Printed: the network with biases has a finite condition number, the same at every depth. Right: R d of its "
        "eigenvalues are zero; the others have the same condition number at every depth (the number: its relative "
        f"change up to {UNITS[-1]} units).",
    )


def judge_rectified(readings: Sequence[Measurement]) -> Judgement:
    """The condition number beside zero with ReLU against the slope-1/2 convention."""
    _, found = against(readings, "condition_number", "depth", "near_zero")
    _, convention = against(readings, "convention", "depth", "near_zero")
    return decide_correction(
        (over_seeds(found / convention - 1), Band.around(0.0, CONVENTION)),
        (over_seeds((found[:, 1:] - found[:, :1]) / found.mean()), Band.around(0.0, INVARIANT)),
        "Condition number beside zero, ReLU between the matrices, first 1,000 digits. Printed: ReLU through a local "
        f"polynomial, slope 1/2, gives {float(convention.mean()):.2f}. Right: it has no derivative at zero, and beside "
        f"zero the number is {float(found[:, -1].mean()):.2f}, nearly the same at every depth (the number: change "
        f"relative to depth {RECTIFIED_DEPTHS[0]}).",
    )


CLAIMS = (
    Claim(
        "stationary_point",
        "Zero is a stationary point of order n − 1 for n ≥ 2.",
        "Theorem 2.1, Lemma 3",
        f"derivatives vanish: {EQUAL}",
        judge_stationary,
    ),
    Claim(
        "zero_hessian", "For n ≥ 3 the Hessian is the zero matrix.", "Theorem 2.1", f"0: {EQUAL}", judge_zero_hessian
    ),
    Claim(
        "two_shortcut_form",
        "For n = 2 the Hessian has blocks [[0, Aᵀ], [A, 0]] with A from the data alone.",
        "Theorem 2.2, Eqs. 8, 23 and 25",
        f"equality: {EQUAL}",
        judge_two_shortcut,
    ),
    Claim(
        "condition_number",
        "For n = 2 the condition number is √cond((Σ^X − Σ^Y)ᵀ(Σ^X − Σ^Y)) at every depth.",
        "Theorem 2.2, Eq. 9",
        f"equality: {EQUAL}",
        judge_condition_number,
    ),
    Claim("strict_saddle", "For n = 2 zero is a strict saddle point.", "Theorem 2.2", "index > 0", judge_saddle),
    Claim(
        "copies",
        "The eigenvalues are copies of ±√eigs(AᵀA), as many as shortcuts.",
        "Section 4.2, Eqs. 22 and 26",
        f"equality: {EQUAL}",
        judge_copies,
    ),
    Claim(
        "one_shortcut_form",
        "For n = 1 the Hessian has B on the diagonal of blocks, A below and Aᵀ above.",
        "Theorem 2.3, Eqs. 10, 29 and 32",
        f"equality: {EQUAL}",
        judge_one_shortcut,
    ),
    Claim(
        "local_minimum",
        "Networks with shortcuts of length 2 have spurious local minima such as the zero initial point.",
        "Section 2",
        "index 0",
        judge_local_minimum,
    ),
    Claim(
        "explosion",
        "The condition number of 1-shortcut networks explodes with depth, as that of block-Toeplitz matrices.",
        "Section 4.2",
        "explodes",
        judge_explosion,
    ),
    Claim(
        "biases",
        "The network with biases has a depth-invariant condition number too.",
        "Section 4.1, after Eq. 3",
        "finite",
        judge_biases,
    ),
    Claim(
        "relu",
        "ReLU is covered through a local polynomial.",
        "Section 4.2, after Assumption 3",
        "1.56 on digits (shown if corrected: relative change with depth)",
        judge_rectified,
    ),
)

_CAPTIONS = {
    1: "One matrix a unit: B on the diagonal of blocks, A below it, Aᵀ above it; every two units are coupled.",
    2: "Two matrices a unit (the paper's figure 11): only the two matrices of the same unit are coupled, by A and Aᵀ.",
    3: "Three matrices a unit: the Hessian is zero.",
}


def figures(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The Hessians for each shortcut's length, and condition numbers against depth."""
    lengths = values(readings, "branch_depth", "picture")
    return (*(_blocks(readings, length) for length in lengths), _conditions(readings))


def _blocks(readings: Sequence[Measurement], branch_depth: int) -> Figure:
    H = stacked(readings, "hessian", "picture", branch_depth=branch_depth)[0]
    return Figure(
        name=f"hessian_{branch_depth}_shortcut",
        title=f"Theorem 2: Hessian at zero, {branch_depth}-shortcut",
        caption=f"{_CAPTIONS[branch_depth]} Linear network of 3 units and width 3 on random data.",
        x_label="parameter",
        y_label="parameter",
        marks=(Heat(tuple(numbers(row) for row in H), "second derivative"),),
    )


def _conditions(readings: Sequence[Measurement]) -> Figure:
    marks: list[Mark] = []
    for number, n in enumerate((1, 2)):
        depths, found = against(readings, "condition_number", "depth", "digit_spectrum", branch_depth=n)
        marks += curve(depths, found, f"{n}-shortcut", number)
    return Figure(
        name="condition_numbers",
        title="Theorem 2: condition number at zero on digits",
        caption="Two matrices a unit: the same at every depth. One matrix a unit: linear growth. Bands are one "
        "standard deviation over random signs of the principal components.",
        x_label="depth (weight matrices)",
        y_label="|λ|max over the 10 % quantile of |λ|",
        marks=tuple(marks),
    )


_DEVIATIONS = (
    "The theorem gives no example: here 20 Gaussian inputs of width 3 with random labels, and whitened digits.",
    "The digits' principal components have random signs: the paper gives no rule, and the shortcut ties component i to "
    "class i.",
    QUANTILE,
    SMOKE_IMAGES,
)

ITEMS = (Item("thm2", "Hessians at zero", runs, CLAIMS, figures, raw_tables, _DEVIATIONS),)
