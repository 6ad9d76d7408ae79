"""Theorem 2: what the Hessian at zero weights looks like, for one, two and three matrices a unit."""

import math
from typing import Literal

import torch
from torch import Tensor

from skiplens.base import Float, option
from skiplens.linalg.second_moments import SecondMoments
from skiplens.papers import statistics
from skiplens.papers.li2016_shortcuts import common, hessian
from skiplens.papers.li2016_shortcuts.common import Source
from skiplens.papers.li2016_shortcuts.hessian import BranchActivations, ToeplitzBlocks, exact, linear_hessian
from skiplens.papers.li2016_shortcuts.hessian.at_zero import near_zero_rectified_spectrum, two_shortcut_unit
from skiplens.papers.statistics import Band, Readings, against, decide, decide_correction, over_seeds, stacked, values
from skiplens.papers.study import Item, Judgement, Preset, claim
from skiplens.plots.figure import Figure, Heat, numbers
from skiplens.sweeps.run import Run
from skiplens.zoo.weight_laws import xavier_weights


class RandomData(statistics.ReplicateSettings):
    """Gaussian inputs with random labels, and the network that sees them."""

    units: int = option(3, "residual units (R)")
    branch_depth: int = option(2, "weight matrices of a unit, the shortcut's length (n)")
    width: int = option(3, "features (d)")
    samples: int = option(20, "samples (m)")


class Structure(RandomData):
    """The Hessian at zero by automatic differentiation, beside the printed one."""

    activations: Literal["identity", "smooth"] = option(
        "identity", "smooth: softplus before, SiLU between, tanh after the matrices"
    )


class Picture(RandomData):
    """The Hessian at zero itself, to be seen."""


class Derivatives(RandomData):
    """Derivatives of the loss at zero along a random direction."""


class Biased(RandomData):
    """The network of theorem 1, with biases."""


class DigitSpectrum(statistics.ReplicateSettings):
    """The spectrum at zero of a linear network on digits whose principal components have random signs."""

    depth: int = option(2, "weight matrices (D)")
    branch_depth: int = option(2, "weight matrices of a unit (n)")
    source: Source = option("mnist", "digits: the embedded ones or all of MNIST")


class NearZero(statistics.ReplicateSettings):
    """The true spectrum beside zero of a 2-shortcut network with ReLU between its matrices."""

    depth: int = option(2, "weight matrices (D)")
    samples: int = option(1000, "first digits, whitened by themselves")


# Replicates, and depths and source of digits.
SIZES: dict[Preset, tuple[int, tuple[int, ...], Source]] = {
    "smoke": (10, (2, 4, 8, 16), "sample"),
    "laptop": (20, (2, 4, 8, 16), "mnist"),
    "paper": (20, (2, 4, 8, 16, 32, 64), "mnist"),
}
UNITS = (1, 2, 4)  # at which random data are looked at with automatic differentiation
BRANCH_DEPTHS = (1, 2, 3)
RECTIFIED_DEPTHS = (4, 16, 64)


def runs(preset: Preset, seed: int) -> list[Run]:
    """Random data with automatic differentiation, digits with closed forms."""
    count, depths, source = SIZES[preset]
    digits, with_one = (DigitSpectrum(source=source, branch_depth=n) for n in (2, 1))
    return [
        *statistics.replicated(structure, Structure(), count, seed, branch_depth=BRANCH_DEPTHS, units=UNITS),
        *statistics.replicated(structure, Structure(activations="smooth"), count, seed, units=UNITS),
        *statistics.replicated(picture, Picture(), 1, seed, branch_depth=BRANCH_DEPTHS),
        *statistics.replicated(derivatives, Derivatives(units=2), count, seed, branch_depth=(2, 3, 4)),
        *statistics.replicated(biased, Biased(), count, seed, units=UNITS),
        *statistics.replicated(digit_spectrum, with_one, count, seed, depth=depths),
        *statistics.replicated(digit_spectrum, digits, count, seed, depth=depths[:-1]),  # nothing new in the deepest
        # More than of the others: networks differ much beside zero, and little work is needed to see it.
        *statistics.replicated(near_zero, NearZero(), 60, seed, depth=RECTIFIED_DEPTHS),
    ]


ACTIVATIONS = {"identity": BranchActivations(), "smooth": BranchActivations(pre="softplus", mid="silu", post="tanh")}
# σ_mid'(0) σ_post'(0): SiLU has 1/2, tanh 1. σ_pre(0) need not vanish, and softplus' does not.
SLOPES = {"identity": 1.0, "smooth": 0.5}


def structure(settings: Structure) -> dict[str, Tensor]:
    """How far the Hessian at zero is from the printed one; for two matrices a unit also what its eigenvalues say."""
    inputs, targets = random_data(settings)
    H = _hessian(settings, inputs, targets, settings.activations)
    pre, _, _ = ACTIVATIONS[settings.activations].resolved()
    G = (inputs - targets).T @ pre(inputs) / len(inputs)  # Σ^{Xσ_pre(X)} − Σ^{Yσ_pre(X)}
    if settings.branch_depth == 1:  # equations (10), (29) and (32), with P of equation (24)
        P, d = exact.commutation_matrix(settings.width), settings.width
        B = P @ torch.block_diag(*[inputs.T @ inputs / len(inputs)] * d) @ P.T
        printed = ToeplitzBlocks(B, torch.block_diag(*[G] * d) @ P.T + B).dense(settings.units)
    elif settings.branch_depth == 2:  # equations (8) and (25)
        printed = torch.block_diag(*[two_shortcut_unit(SLOPES[settings.activations] * G)] * settings.units)
    else:
        printed = torch.zeros_like(H)
    found = {"error": (H - printed).abs().max() / G.abs().max()}
    if settings.branch_depth != 2:
        return found
    eigenvalues = torch.linalg.eigvalsh(H)
    sizes = SLOPES[settings.activations] * torch.linalg.svdvals(G).repeat(settings.units * settings.width)
    copies = torch.cat([sizes, -sizes]).sort().values
    return found | {
        "copies_error": (eigenvalues - copies).abs().max() / copies.max(),
        "index": (eigenvalues < 0).double().mean(),
        "condition_number": eigenvalues.abs().max() / eigenvalues.abs().min(),
        "printed_condition_number": torch.tensor(common.printed_condition_number(G), dtype=torch.float64),
    }


def picture(settings: Picture) -> dict[str, Tensor]:
    """The Hessian at zero by automatic differentiation."""
    return {"hessian": _hessian(settings, *random_data(settings), "identity")}


def derivatives(settings: Derivatives) -> dict[str, Tensor]:
    """Derivatives of order 1 to n of the loss along a random direction, by differentiating again and again."""
    inputs, targets = random_data(settings)
    n = settings.branch_depth
    shape = (settings.units * n, settings.width, settings.width)
    direction = torch.randn(shape, dtype=torch.float64, generator=settings.stream())

    def along(t: Tensor) -> Tensor:
        return exact.square_loss(exact.shortcut_outputs(t * direction, inputs, n, ACTIVATIONS["identity"]), targets)

    orders = []
    for _ in range(n):
        along = torch.func.grad(along)
        orders.append(along(torch.zeros((), dtype=torch.float64)))
    return {"order": torch.arange(1, n + 1), "derivative": torch.stack(orders)}


def biased(settings: Biased) -> dict[str, Tensor]:
    """Spectrum at zero of equation (3)'s network with tanh instead of ReLU: zeros, and the condition of the rest."""
    inputs, targets = random_data(settings)
    d = settings.width

    def loss(params: Tensor) -> Tensor:
        h = inputs
        for unit in params.unflatten(0, (settings.units, -1)):
            W_1, b, W_2 = unit[: d * d].view(d, d), unit[d * d : d * d + d], unit[d * d + d :].view(d, d)
            h = h + torch.tanh(h @ W_1.T + b) @ W_2.T
        return exact.square_loss(h, targets)

    at_zero = torch.zeros(settings.units * d * (2 * d + 1), dtype=torch.float64)
    sizes = torch.linalg.eigvalsh(exact.hessian_by_autograd(loss, at_zero)).abs().sort().values
    zeros = settings.units * d
    return {
        "smallest_share": sizes[0] / sizes[-1],
        "largest_zero_share": sizes[zeros - 1] / sizes[-1],
        "condition_of_rest": sizes[-1] / sizes[zeros],
    }


def digit_spectrum(settings: DigitSpectrum) -> dict[str, Tensor]:
    """The spectrum at exactly zero weights on digits, and equation (9) for two matrices a unit."""
    # The paper gives no rule for the signs of principal components, so they are random.
    signs = torch.randint(2, (common.WIDTH,), generator=settings.shared_stream("signs")).double() * 2 - 1
    moments = common.digit_moments(settings.source)
    moments = SecondMoments(signs[:, None] * moments.inputs * signs, moments.cross * signs, moments.target_power)
    weights = torch.zeros(settings.depth, common.WIDTH, common.WIDTH, dtype=torch.float64)
    spectrum = hessian.spectrum_of(linear_hessian(hessian.shortcut_units(weights, settings.branch_depth), moments))
    return common.scalars(
        largest=spectrum.largest,
        smallest=spectrum.smallest,
        tenth=spectrum.absolute_quantile(0.1),
        condition_number=spectrum.condition_number,
        full_condition_number=spectrum.full_condition_number,
        index=spectrum.index,
        printed_condition_number=common.printed_condition_number(moments.inputs - moments.cross),
    )


def near_zero(settings: NearZero) -> dict[str, Tensor]:
    """The condition number beside zero with ReLU between the matrices, and that of the slope-1/2 convention."""
    inputs, targets = common.whitened_digits("sample", settings.samples)
    generator = settings.stream()
    first = torch.stack([xavier_weights((common.WIDTH, common.WIDTH), generator) for _ in range(settings.depth // 2)])
    spectrum = near_zero_rectified_spectrum(first, inputs, targets)
    G = (inputs - targets).T @ inputs / len(inputs)
    return common.scalars(
        condition_number=spectrum.condition_number, convention=float(torch.linalg.cond(G)), index=spectrum.index
    )


def random_data(settings: RandomData) -> tuple[Float[Tensor, "samples width"], Float[Tensor, "samples width"]]:
    """Gaussian inputs and random one-hot labels, the same for all networks of a replicate."""
    generator = settings.shared_stream("data")
    inputs = torch.randn(settings.samples, settings.width, dtype=torch.float64, generator=generator)
    labels = torch.randint(settings.width, (settings.samples,), generator=generator)
    return inputs, torch.eye(settings.width, dtype=torch.float64)[labels]


def _hessian(settings: RandomData, inputs: Tensor, targets: Tensor, activations: str) -> Tensor:
    def loss(params: Tensor) -> Tensor:
        weights = exact.unflatten(params, settings.width)
        return exact.square_loss(
            exact.shortcut_outputs(weights, inputs, settings.branch_depth, ACTIVATIONS[activations]), targets
        )

    params = settings.units * settings.branch_depth * settings.width**2
    return exact.hessian_by_autograd(loss, torch.zeros(params, dtype=torch.float64))


def _structure(readings: Readings, name: str, branch_depth: int) -> Tensor:
    """A number of all networks on random data with this shortcut's length, (replicates, networks)."""
    parts = []
    for kind in values(readings, "activations", structure, branch_depth=branch_depth):
        parts.append(against(readings, name, "units", structure, branch_depth=branch_depth, activations=kind)[1])
    return torch.cat(parts, dim=1)


@claim("Theorem 2.1, Lemma 3", f"derivatives vanish: {common.EQUAL}")
def _stationary_point(readings: Readings) -> Judgement:
    """Zero is a stationary point of order n − 1 for n ≥ 2."""
    shares = []
    for n in values(readings, "branch_depth", derivatives):
        orders = stacked(readings, "derivative", derivatives, branch_depth=n)
        shares.append((orders[:, :-1] / orders[:, -1:]).abs())
    sentence = "Derivatives of order 1 to n − 1 along random directions over that of order n, for n = 2, 3, 4."
    return common.judge_equality(torch.cat(shares, dim=1), sentence)


@claim("Theorem 2.1", f"0: {common.EQUAL}")
def _zero_hessian(readings: Readings) -> Judgement:
    """For n ≥ 3 the Hessian is the zero matrix."""
    return common.judge_equality(_structure(readings, "error", 3), "Entries of the Hessian at zero for n = 3.")


@claim("Theorem 2.2, Eqs. 8, 23 and 25", f"equality: {common.EQUAL}")
def _two_shortcut_form(readings: Readings) -> Judgement:
    """For n = 2 the Hessian has blocks [[0, Aᵀ], [A, 0]] with A from the data alone."""
    sentence = "Hessian by automatic differentiation against equations (8) and (25), linear and with activations."
    return common.judge_equality(_structure(readings, "error", 2), sentence)


@claim("Theorem 2.2, Eq. 9", f"equality: {common.EQUAL}")
def _condition_number(readings: Readings) -> Judgement:
    """For n = 2 the condition number is √cond((Σ^X − Σ^Y)ᵀ(Σ^X − Σ^Y)) at every depth."""
    ratios = _structure(readings, "condition_number", 2) / _structure(readings, "printed_condition_number", 2)
    _, found = against(readings, "full_condition_number", "depth", digit_spectrum, branch_depth=2)
    _, printed = against(readings, "printed_condition_number", "depth", digit_spectrum, branch_depth=2)
    sentence = "Condition number at every depth against equation (9), random data and digits."
    return common.judge_equality(torch.cat([ratios, found / printed], 1) - 1, sentence)


@claim("Theorem 2.2", "index > 0")
def _strict_saddle(readings: Readings) -> Judgement:
    """For n = 2 zero is a strict saddle point."""
    sentence = "Share of negative eigenvalues of the Hessian at zero, n = 2, random data: half of them."
    return decide(over_seeds(_structure(readings, "index", 2)), Band(common.ROUNDING, math.inf), sentence)


@claim("Section 4.2, Eqs. 22 and 26", f"equality: {common.EQUAL}")
def _copies(readings: Readings) -> Judgement:
    """The eigenvalues are copies of ±√eigs(AᵀA), as many as shortcuts."""
    sentence = (
        "All eigenvalues against R copies of ±√eigs(AᵀA); AᵀA has each of its d distinct ones d times, so each of "
        "±σ(G) occurs R d times."
    )
    return common.judge_equality(_structure(readings, "copies_error", 2), sentence)


@claim("Theorem 2.3, Eqs. 10, 29 and 32", f"equality: {common.EQUAL}")
def _one_shortcut_form(readings: Readings) -> Judgement:
    """For n = 1 the Hessian has B on the diagonal of blocks, A below and Aᵀ above."""
    sentence = "Hessian by automatic differentiation against equations (10), (29) and (32)."
    return common.judge_equality(_structure(readings, "error", 1), sentence)


@claim("Section 2", "index 0")
def _local_minimum(readings: Readings) -> Judgement:
    """Networks with shortcuts of length 2 have spurious local minima such as the zero initial point."""
    found = over_seeds(_structure(readings, "index", 2))
    return decide_correction(
        (found, Band.around(0.0, common.ROUNDING)),
        (found, Band.around(0.5, common.ROUNDING)),
        "Share of negative eigenvalues at zero, n = 2. Printed: a spurious local minimum, so none. Right (theorem 2): "
        "a strict saddle, half of the eigenvalues are negative.",
    )


@claim("Section 4.2", "explodes")
def _explosion(readings: Readings) -> Judgement:
    """The condition number of 1-shortcut networks explodes with depth, as that of block-Toeplitz matrices."""
    depths, found = against(readings, "condition_number", "depth", digit_spectrum, branch_depth=1)
    doublings = found.log().diff(dim=1)
    # Growth of the logarithm in one doubling over that in the doubling before: 2 if exponential, 1 if a power law.
    ratio = over_seeds(doublings[:, -1] / doublings[:, -2])
    return decide_correction(
        (ratio, Band(1.5, math.inf)),
        (over_seeds(doublings[:, -1].exp()), Band(1.9, 2.3)),
        f"Condition number on digits from depth {depths[-2]} to {depths[-1]}, one matrix a unit: the factor. Printed: "
        "it explodes, by a theory of block-Toeplitz matrices whose blocks decay. Right: these blocks are constant, and "
        "it grows linearly: twice the depth, twice the number.",
    )


@claim("Section 4.1, after Eq. 3", "finite")
def _biases(readings: Readings) -> Judgement:
    """The network with biases has a depth-invariant condition number too."""
    smallest, rest = (against(readings, name, "units", biased)[1] for name in ("smallest_share", "condition_of_rest"))
    return decide_correction(
        (over_seeds(smallest), Band(common.ROUNDING, math.inf)),
        (over_seeds(rest / rest[:, :1] - 1), Band.around(0.0, common.ROUNDING)),
        "Printed: the network with biases has a finite condition number, the same at every depth. Right: R d of its "
        "eigenvalues are zero; the others have the same condition number at every depth (the number: its relative "
        f"change up to {UNITS[-1]} units).",
    )


@claim("Section 4.2, after Assumption 3", "1.56 on digits (shown if corrected: relative change with depth)")
def _relu(readings: Readings) -> Judgement:
    """ReLU is covered through a local polynomial."""
    found, convention = (against(readings, name, "depth", near_zero)[1] for name in ("condition_number", "convention"))
    return decide_correction(
        (over_seeds(found / convention - 1), Band.around(0.0, 0.05)),
        (over_seeds((found[:, 1:] - found[:, :1]) / found.mean()), Band.around(0.0, 0.1)),
        "Condition number beside zero, ReLU between the matrices, first 1,000 digits. Printed: ReLU through a local "
        f"polynomial, slope 1/2, gives {float(convention.mean()):.2f}. Right: it has no derivative at zero, and beside "
        f"zero the number is {float(found[:, -1].mean()):.2f}, nearly the same at every depth (the number: change "
        f"relative to depth {RECTIFIED_DEPTHS[0]}).",
    )


CLAIMS = (
    *(_stationary_point, _zero_hessian, _two_shortcut_form, _condition_number, _strict_saddle, _copies),
    *(_one_shortcut_form, _local_minimum, _explosion, _biases, _relu),
)

_CAPTIONS = {
    1: "One matrix a unit: B on the diagonal of blocks, A below it, Aᵀ above it; every two units are coupled.",
    2: "Two matrices a unit (the paper's figure 11): only the two matrices of the same unit are coupled, by A and Aᵀ.",
    3: "Three matrices a unit: the Hessian is zero.",
}


def figures(readings: Readings) -> tuple[Figure, ...]:
    """The Hessians for each shortcut's length, and condition numbers against depth."""
    found = []
    for n in values(readings, "branch_depth", picture):
        words = (f"hessian_{n}_shortcut", f"Theorem 2: Hessian at zero, {n}-shortcut")
        caption = f"{_CAPTIONS[n]} Linear network of 3 units and width 3 on random data."
        H = stacked(readings, "hessian", picture, branch_depth=n)[0]
        heat = Heat(tuple(numbers(row) for row in H), "second derivative")
        found.append(statistics.figure(words, caption, ("parameter", "parameter"), [heat]))
    conditions = (against(readings, "condition_number", "depth", digit_spectrum, branch_depth=n) for n in (1, 2))
    marks = statistics.curves((*each, f"{n}-shortcut") for n, each in enumerate(conditions, 1))
    words = ("condition_numbers", "Theorem 2: condition number at zero on digits")
    caption = (
        "Two matrices a unit: the same at every depth. One matrix a unit: linear growth. Bands are one standard "
        "deviation over random signs of the principal components."
    )
    labels = ("depth (weight matrices)", "|λ|max over the 10 % quantile of |λ|")
    return (*found, statistics.figure(words, caption, labels, marks))


_DEVIATIONS = (
    "The theorem gives no example: here 20 Gaussian inputs of width 3 with random labels, and whitened digits.",
    "The digits' principal components have random signs: the paper gives no rule, and the shortcut ties component i to "
    "class i.",
    common.QUANTILE,
    common.SMOKE_IMAGES,
)

ITEMS = (Item("thm2", "Hessians at zero", runs, CLAIMS, figures, statistics.raw_tables, _DEVIATIONS),)
