"""The curvature lens: the spectrum of the loss's Hessian on a few samples, sampled cheaply."""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from skiplens.base import (
    Progress,
    Randomness,
    budget_bytes,
    free_bytes,
    in_words,
    percent,
    plus_minus,
    silent,
    span,
    track,
)
from skiplens.base.errors import NotExportableError, NotReachedError
from skiplens.curvature.operator import SPARE_VECTORS
from skiplens.curvature.reading import HessianSpectrum
from skiplens.curvature.sampled import SHARE_OF_VECTORS
from skiplens.curvature.spectrum import hessian_spectrum, parameters_by_block
from skiplens.graph.functional import pure_model
from skiplens.graph.lens import Lens, Subject
from skiplens.graph.loss import loss_name
from skiplens.linalg.density import weighted_quantiles
from skiplens.plots.figure import Band, Bars, Figure, Line, Mark, Points, Reference, colour, in_order, numbers
from skiplens.plots.section import LEVELS, Curve, KeyNumber, Overlay, ReadingView, Scale, Section
from skiplens.readings.finding import Finding, Rule, finding_with, rule_words
from skiplens.readings.reading import Provenance

MOST_EXACT = 100  # parameters up to which all eigenvalues are computed: one product each
PASSES_OF_A_PRODUCT = 6  # a product with the Hessian in forward passes: two forward, and backward through both
FEWEST_STEPS = 4  # of Lanczos, which show the extremes, with how far off they may be, and an outline of the density
VECTORS, FEWEST_BYTES = 14, 2**31  # of the length of all parameters that are at hand at least, and what they may take
_MOST_POINTS = 2000  # more eigenvalues than this are not drawn one by one
MANY_STEPS = 1e4  # steps of gradient descent for the slow tenth of all directions that count as many


@dataclass(frozen=True)
class CurvatureEffort:
    """How many samples and products a model is looked at with."""

    samples: int
    probes: int
    steps: int

    def options(self, size: int, seed: int) -> dict[str, Any]:
        """Those of `hessian_spectrum`: exact where that takes hardly more products; extremes as the density shows."""
        method = "exact" if size <= MOST_EXACT else "lanczos"
        return {"method": method, "probes": self.probes, "steps": self.steps, "extremes": 0, "seed": seed}


@dataclass(frozen=True)
class CurvatureLens(Lens):
    """The Hessian's extremes, density, condition number and index, and the extremes of each block."""

    name: ClassVar[str] = "curvature"
    vectors: ClassVar[int] = 6
    question: ClassVar[str] = "Is the loss about as steep in all directions?"

    effort: CurvatureEffort = CurvatureEffort(samples=20, probes=3, steps=16)
    large_effort: CurvatureEffort = CurvatureEffort(samples=8, probes=2, steps=12)
    block_effort: CurvatureEffort = CurvatureEffort(samples=8, probes=2, steps=5)
    large_from: int = 2_000_000
    """Models with more parameters than this get the large effort, and their blocks are not looked at one by one."""
    most_blocks: int = 16
    """With more residual blocks than this they are not looked at one by one."""

    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress = silent) -> HessianSpectrum:
        """Measure with the subject's loss; without one it is cross-entropy for classes and mean square for numbers."""
        pure = pure_model(subject.model)
        effort = self.large_effort if pure.parameter_count > self.large_from else self.effort
        batch, cut = subject.few(effort.samples, passes=PASSES_OF_A_PRODUCT * effort.probes * effort.steps)
        loss, batch = subject.fitted_loss(batch)
        settings = {"lens": self.name, "model": subject.name, "loss": loss_name(loss), "samples": batch.samples}
        clock = Provenance.begin(settings, randomness.seed, subject.device)
        each = PASSES_OF_A_PRODUCT * effort.probes * batch.samples
        spent = replace(effort, steps=subject.afforded(each, effort.steps, min(FEWEST_STEPS, effort.steps)))
        asked = spent.options(pure.parameter_count, randomness.seed)
        needed = SPARE_VECTORS * pure.parameter_count * pure.dtype.itemsize
        if spent != effort or needed > SHARE_OF_VECTORS * budget_bytes(
            pure.device
        ):  # the moments then come from the density, without products of their own
            # so few steps need no basis, so a budget that holds none is enough, if there is even that room
            least = max(FEWEST_BYTES, VECTORS * pure.parameter_count * pure.dtype.itemsize)
            asked |= {"moment_products": 0, "memory": least if least <= free_bytes(pure.device) else None}
        whole = hessian_spectrum(subject.model, batch, loss=loss, progress=progress, **asked)
        groups, notes = self._groups(subject, pure.parameters) if effort == self.effort else ({}, ())
        few, blocks = subject.fitted_loss(batch.first(self.block_effort.samples))[1], {}
        for name, names in track(groups.items(), "curvature of the blocks", len(groups), progress):
            size = sum(pure.parameters[parameter].numel() for parameter in names)
            asked = self.block_effort.options(size, randomness.seed) | {"moment_products": 0}
            with suppress(NotReachedError):  # a block of another output has no curvature here
                values = hessian_spectrum(subject.model, few, loss=loss, parameters=names, **asked).values()
                # Extremes are told of single blocks; their densities would be the largest part of a report.
                blocks[name] = values | dict.fromkeys(("grid", "density", "density_error"), whole.grid[:0])
        how = f"the density was sampled with {whole.probes} random vectors and {whole.steps} products each"
        how = "all eigenvalues were computed" if whole.method == "exact" else how
        of_blocks = f"; single blocks were looked at with {few.samples} samples" if blocks else ""
        seen = f"The loss was taken over {whole.samples} of {subject.batch.samples} samples; {how}{of_blocks}."
        return replace(whole, block_values=blocks, notes=(seen, *cut, *whole.notes, *notes), provenance=clock.end())

    def _groups(self, subject: Subject, names: Mapping[str, Any]) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
        """The parameters of each block, and why there are none where there are none."""
        try:
            groups = parameters_by_block(subject.network.blocks, names)
        except NotExportableError:
            return {}, ("The residual blocks of this model cannot be found, so they were not looked at one by one.",)
        if len(groups) > self.most_blocks:
            return {}, (f"The {len(groups)} residual blocks were not looked at one by one.",)
        return groups, ()


def eigenvalue_density(reading: HessianSpectrum) -> Figure:
    """The smoothed density with its error band, the extremes, and the eigenvalues where they are known."""
    # A fifth of the peak that a single eigenvalue makes: what is below it is the tail of the smoothing.
    floor = 0.2 / (reading.parameters * reading.smoothing_width * (2 * torch.pi) ** 0.5)
    x, density, error = numbers(reading.grid), reading.density, 2 * reading.density_error
    curve = Line(x, numbers(torch.where(density >= floor, density, torch.nan)), "density", colour=colour(0))
    ends = Reference(reading.smallest, "smallest", axis="x"), Reference(reading.largest, "largest", axis="x")
    sampled = reading.method == "lanczos"
    marks: tuple[Mark, ...]
    if sampled:
        low, high = ((density + sign * error).clamp_min(floor) for sign in (-1, 1))
        marks = (Band(x, numbers(low), numbers(high), "± 2 standard errors", colour(0)), curve, *ends)
    else:
        values = reading.eigenvalues if len(reading.eigenvalues) <= _MOST_POINTS else reading.eigenvalues[[0, -1]]
        marks = (curve, Points(numbers(values), (floor,) * len(values), "eigenvalues"), *ends)
    bumps = " Inner bumps are groups of eigenvalues that so few products do not tell apart." * sampled
    caption = (
        "How many directions have which curvature, on a logarithmic axis. Left of zero the loss curves down: a saddle. "
        f"A peak at zero with a few far-away eigenvalues is a badly conditioned loss.{bumps}"
    )
    words = ("eigenvalue_density", f"Eigenvalues of the {reading.matrix_name}", caption, "eigenvalue", "density")
    return Figure(*words, marks, y_log=True)


def eigenvalues_by_size(reading: HessianSpectrum) -> Figure | None:
    """How many eigenvalues are steeper than a level, up and down, over all orders of magnitude."""
    lines = []
    for sign, name in ((1, "upward, λ > x"), (-1, "downward, λ < −x")):
        values = sign * reading.nodes
        chosen = values > reading.rounding
        sizes, order = values[chosen].sort(descending=True)
        shares = reading.weights[chosen][order].cumsum(0)  # how much weight lies at or above each
        if len(sizes) > 1:
            lines.append(Line(numbers(sizes.flip(0)), numbers(shares.flip(0)), name))
    if not lines:
        return None
    caption = (
        "Share of directions in which the loss curves up, or down, more strongly than x. Where both curves lie "
        "together the loss has as many ways down as up at that steepness."
    )
    title, labels = "How many directions are steeper than x", ("steepness x", "share of directions")
    steepest = Reference(reading.largest_absolute, "steepest", axis="x")
    return Figure("eigenvalues_by_size", title, caption, *labels, (*lines, steepest), x_log=True, y_log=True)


def extremes_by_block(reading: HessianSpectrum) -> Figure | None:
    """The largest and the smallest eigenvalue of each block's parameters alone."""
    blocks = reading.blocks
    if not blocks:
        return None
    names, marks = tuple(blocks), []
    sampled = all(block.method == "lanczos" for block in blocks.values())  # else they are exact but for rounding
    for end, place in (("largest", -1), ("smallest", 0)):
        errors = numbers([float(block.extreme_residuals[place]) for block in blocks.values()]) if sampled else ()
        marks.append(Bars(names, numbers([getattr(block, end) for block in blocks.values()]), end, errors))
    caption = (
        "Largest and smallest eigenvalue when only the parameters of one residual block move. The block with the "
        "longest bars is the steepest; bars below zero are directions that lead down. An eigenvalue lies within each "
        "error bar."
    )
    words = ("extremes_by_block", "Steepest directions of each block", caption, "residual block", "eigenvalue")
    return Figure(*words, tuple(marks), block_places=in_order(names))


FIGURES = (eigenvalue_density, eigenvalues_by_size, extremes_by_block)
_TELLING = 0.2  # an interval of the index wider than this is reported as not known


def curvature_section(reading: HessianSpectrum) -> Section:
    """How well conditioned the loss is, and how many directions lead down."""
    name = str(reading.provenance.settings.get("loss", "")).replace("_", " ")
    step = in_words(2 / reading.largest) if reading.largest > 0 else "any: no direction curves up"
    facts = (
        ("matrix", f"{reading.matrix_name} of {reading.parameters:,} parameters"),
        (f"loss{f' ({name})' if name else ''}", f"{in_words(reading.loss)} over {reading.samples} samples"),
        ("length of the gradient", in_words(reading.gradient_norm)),
        ("largest eigenvalue", _with_residual(reading, -1)),
        ("smallest eigenvalue", _with_residual(reading, 0)),
        ("condition number (|λ|max over the 10 % quantile of |λ|)", _condition(reading)),
        ("index (share of directions that lead down)", _share(reading.index, reading.index_interval)),
        ("flat directions (|λ| at most a tenth of |λ|max)", _share(reading.flat_share, reading.flat_interval)),
        ("curvature that is downward", _percent(reading.negative_mass, reading.negative_mass_error)),
        ("trace", plus_minus(reading.trace, reading.trace_error)),
        ("Frobenius norm", plus_minus(reading.frobenius_norm, reading.frobenius_error)),
        ("step up to which the quadratic model of the loss falls (2/λmax)", step),
    )
    rows = tuple(
        {
            "block": name,
            "parameters": f"{block.parameters:,}",
            "largest (an eigenvalue lies within)": plus_minus(block.largest, _residual(block, -1)),
            "smallest (an eigenvalue lies within)": plus_minus(block.smallest, _residual(block, 0)),
        }
        for name, block in reading.blocks.items()
    )
    told: dict[str, Any] = {"facts": facts, "rows": rows, "notes": reading.notes}
    return Section.of(reading, "Curvature of the loss", curvature_sentence(reading), FIGURES, **told)


def curvature_sentence(reading: HessianSpectrum) -> str:
    """The spectrum in one or two sentences."""
    if reading.largest_absolute == 0:
        return "The loss does not curve at all here: every eigenvalue is zero."
    low, high = reading.condition_interval
    meaning = "the steepest direction curves that many times more than the flattest tenth"
    if _known(low, high):
        first = f"The loss has condition number {in_words(reading.condition_number)}: {meaning}."
    elif reading.method == "exact":
        flat = "At least a tenth of all directions is flat to working precision"
        first = f"{flat}; the condition number is above {in_words(low)}."
    else:
        between = f"between {in_words(low)} and {in_words(high)}"
        between = f"of at least {in_words(low)}" if math.isinf(high) else between
        first = f"The loss has a condition number {between}: {meaning}."
    low, high = reading.index_interval
    if high - low > _TELLING:
        mass = _percent(reading.negative_mass, reading.negative_mass_error)
        return f"{first} Of all its curvature {mass} is downward; most directions are too flat to tell up from down."
    share = percent(reading.index) if _known(low, high) else f"{span(100 * low, 100 * high)} %"
    return f"{first} It curves down in {share} of all directions."


def _with_residual(reading: HessianSpectrum, place: int) -> str:
    value, residual = in_words(reading.largest if place else reading.smallest), _residual(reading, place)
    return f"{value} (an eigenvalue lies within {in_words(residual, 1)})" if residual else value


def _residual(reading: HessianSpectrum, place: int) -> float:
    """How far an eigenvalue may be from an extreme; 0 where it is exact but for rounding."""
    return float(reading.extreme_residuals[place]) if reading.method == "lanczos" else 0.0


def _condition(reading: HessianSpectrum) -> str:
    low, high = reading.condition_interval
    if _known(low, high):
        return in_words(reading.condition_number)
    if reading.method == "exact":
        return f"above {in_words(low)}"
    return f"{in_words(reading.condition_number)} (95 %: {span(low, high)})"


def _share(value: float, interval: tuple[float, float]) -> str:
    low, high = interval
    return percent(value) if _known(low, high) else f"{percent(value)} (95 %: {span(100 * low, 100 * high)} %)"


def _known(low: float, high: float) -> bool:
    """Whether an interval is so narrow that a person need not know of it."""
    return high - low <= 1e-3 * abs(low)


def _percent(value: float, error: float) -> str:
    return f"{plus_minus(100 * value, 100 * error)} %"


def judge_hessian_condition(reading: HessianSpectrum) -> Iterator[Finding]:
    """How much slower the slowest tenth of all directions is than the fastest."""
    surely, most = reading.condition_interval[0], reading.largest_absolute
    if not surely > MANY_STEPS:
        return
    condition, words = reading.condition_number, rule_words(__file__)
    sentence = (
        f"The loss is ill conditioned here: its steepest direction is {in_words(condition, 2)} times as curved as the "
        f"flattest tenth of all directions (at least {in_words(surely, 2)} with 95 % confidence)."
    )
    change = words["hessian_condition"]["change"].format(step=in_words(2 / most, 2))
    yield finding_with(words, "hessian_condition", "note", sentence, (condition, MANY_STEPS), change=change)


RULES = (Rule("hessian_condition", (HessianSpectrum,), judge_hessian_condition),)


def curvature_scale(reading: HessianSpectrum) -> Scale | None:
    """The condition number that is surely reached."""
    surely = reading.condition_interval[0]
    if math.isnan(surely) or reading.largest_absolute == 0:
        return None
    why = (
        "At 1 the loss curves alike in all directions. One step size has to do for all of them, so the flattest tenth "
        "of the directions needs about that many steps of gradient descent."
    )
    return Scale("is the condition number of the loss, at least", max(1.0, surely), 1.0, MANY_STEPS, why)


def curvature_numbers(reading: HessianSpectrum) -> tuple[KeyNumber, ...]:
    """What models are compared by."""
    return (
        KeyNumber("loss", reading.loss, logarithmic=True),
        KeyNumber("length of the gradient", reading.gradient_norm, logarithmic=True),
        KeyNumber("largest eigenvalue", reading.largest, logarithmic=True),
        KeyNumber("smallest eigenvalue", reading.smallest),
        KeyNumber("trace", reading.trace),
        KeyNumber("condition number", reading.condition_number, logarithmic=True),
        KeyNumber("share of curvature that is downward", reading.negative_mass),
    )


def _steepness(reading: HessianSpectrum) -> Curve:
    sizes, order = reading.nodes.double().abs().sort(descending=True)
    return Curve(100 * LEVELS, weighted_quantiles(sizes, reading.weights[order], LEVELS))


_STEEPNESS = Overlay(
    "steepness",
    "Steepness of the loss",
    "Eigenvalues of the Hessian by size: so many percent of the directions curve less than this.",
    ("share of the directions (%)", "|eigenvalue|"),
    _steepness,
)


VIEW = ReadingView(
    HessianSpectrum,
    CurvatureLens,
    curvature_section,
    FIGURES,
    RULES,
    curvature_numbers,
    (_STEEPNESS,),
    scale=curvature_scale,
)
