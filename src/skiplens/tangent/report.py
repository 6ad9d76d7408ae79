"""The empirical tangent kernel of a model on the first samples of its data, over seeds and beside its limit."""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from skiplens.base import InvalidInputError, Progress, Randomness, SkiplensError, in_words, percent, silent, span
from skiplens.base.preserve_state import preserve_state
from skiplens.graph.batch import Batch
from skiplens.graph.functional import output_shape, pure_model
from skiplens.graph.inputs import samples_of
from skiplens.graph.lens import ENOUGH, Lens, Subject
from skiplens.kernels.finite_width import ResNet, advice, kernel_moments
from skiplens.plots.figure import INK, Figure, Heat, Line, Points, Reference, numbers
from skiplens.plots.section import Curve, KeyNumber, Overlay, ReadingView, Scale, Section
from skiplens.plots.thumbnails import thumbnails
from skiplens.readings.finding import Finding, Rule, finding_with, rule_words
from skiplens.readings.reading import Provenance
from skiplens.signal.reading import SignalReading
from skiplens.tangent.comparison import compared, equivalent_network, kernel_of_some_outputs, limit_of_module
from skiplens.tangent.empirical import empirical_ntk
from skiplens.tangent.reading import TangentReading


@dataclass(frozen=True)
class TangentLens(Lens):
    """The tangent kernel of `samples` samples, summed over outputs; how it varies over seeds; its infinite width."""

    name: ClassVar[str] = "tangent"
    vectors: ClassVar[int] = 2
    question: ClassVar[str] = "Are all samples learned about equally fast?"

    samples: int = 32
    coupled_samples: int = 12  # fewer, where they depend on each other: each derivative is one of the whole batch
    most_outputs: int = 64  # with more of them the kernel is estimated from `sampled_outputs`
    sampled_outputs: int = 8

    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress = silent) -> TangentReading:
        """Compute the kernel, exactly where outputs are few; only outputs and the seeds of redraws are random."""
        pure, model = pure_model(subject.model), subject.model
        with preserve_state(model):
            outputs = math.prod(output_shape(pure, samples_of(subject.batch.first(2).inputs)))
        coupled, looked_at = subject.coupled, outputs
        if outputs > self.most_outputs:
            looked_at = subject.afforded(2 * ENOUGH, self.sampled_outputs, 2)
        most = self.coupled_samples if coupled else self.samples
        batch, cut = subject.few(most, passes=3 * looked_at, least=2, fewest=math.inf if coupled else 1 + looked_at)
        settings = {"lens": self.name, "model": subject.name, "samples": batch.samples}
        clock = Provenance.begin(settings, randomness.seed, subject.device)
        fields, notes = self._kernel(subject, batch, (outputs, looked_at), randomness, progress)
        angles = _angles(batch.inputs, fields["kernel"])
        try:
            more, remarks = compared(subject, batch, angles, randomness, progress)
        except SkiplensError as error:  # the kernel alone is reported
            more, remarks = {}, (f"The kernel was not compared over seeds: {error}",)
        is_class = batch.targets.ndim == 1 and not batch.targets.is_floating_point()
        return TangentReading(
            **fields,
            **more,
            **limit_of_module(subject, batch, outputs),
            targets=batch.targets.long() if is_class else torch.zeros(0, dtype=torch.int64),
            angles=angles,
            parameters=pure.parameter_count,
            batch_coupled=coupled,
            outputs=outputs,
            classes=subject.classes,
            pictures=thumbnails(batch.inputs),
            notes=(*cut, *notes, *remarks),
            provenance=clock.end(),
        )

    def _kernel(
        self, subject: Subject, batch: Batch, counts: tuple[int, int], randomness: Randomness, progress: Progress
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The kernel summed over all outputs, or estimated from some; in fields of the reading, and what to note."""
        (outputs, looked_at), model = counts, subject.model
        if looked_at == outputs:
            return {"kernel": empirical_ntk(model, batch.inputs, progress=progress)}, ()
        drawn = torch.randperm(outputs, generator=randomness.child("outputs").torch())
        chosen = drawn[:looked_at].to(subject.device)
        kernel, error = kernel_of_some_outputs(model, batch.inputs, chosen, outputs, subject.coupled, progress)
        note = f"The kernel was estimated from {len(chosen)} of {outputs:,} outputs, drawn at random."
        return {"kernel": kernel, "kernel_error": error, "sampled_outputs": len(chosen)}, (note,)


def _angles(inputs: object, kernel: Tensor) -> Tensor:
    """Angles between the flattened inputs, where the inputs are one floating tensor."""
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
        return kernel.new_zeros(0, 0)
    units = torch.nn.functional.normalize(inputs.detach().double().flatten(1))
    # 2 asin(|u − v| / 2) is accurate for nearly equal vectors, where acos(u · v) is not.
    return (2 * torch.asin((torch.cdist(units, units) / 2).clamp(max=1))).to(kernel.dtype)


def kernel_by_class(reading: TangentReading) -> Figure:
    """The kernel's correlations as a matrix, samples sorted by class where there are classes."""
    order = torch.argsort(reading.targets, stable=True) if len(reading.targets) else torch.arange(len(reading.kernel))
    correlations = reading.correlations[order][:, order]
    known = dict(enumerate(reading.classes))
    sorted_targets = reading.targets[order].tolist() if len(reading.targets) else []
    labels = tuple(known.get(target, str(target)) for target in sorted_targets)
    pictures = tuple(reading.pictures[sample] for sample in order) if len(reading.pictures) == len(order) else ()
    classes = "; samples are sorted by class, and a block along the diagonal is a class that is learned together"
    caption = f"Correlation of the parameter gradients of two samples{classes * bool(len(reading.targets))}."
    along = "samples by class" if labels else "sample"
    heat = Heat(tuple(numbers(row) for row in correlations), "correlation", labels, pictures)
    return Figure("kernel", "Tangent kernel between samples", caption, along, along, (heat,))


def kernel_eigenvalues(reading: TangentReading) -> Figure:
    """The kernel's eigenvalues, largest first."""
    values = reading.eigenvalues
    positive = values.clamp_min(values[0] * torch.finfo(values.dtype).eps)
    caption = (
        "Gradient descent with a small step learns direction i at a speed proportional to eigenvalue i: a steep fall "
        "means that some directions take very much longer than others."
    )
    words = ("eigenvalues", "Eigenvalues of the tangent kernel", caption, "rank", "eigenvalue")
    return Figure(*words, (Points(numbers(range(1, len(values) + 1)), numbers(positive)),), y_log=True)


def kernel_against_angle(reading: TangentReading) -> Figure | None:
    """The kernel's correlation of each pair of samples against the angle between the inputs."""
    if not reading.angles.numel() or len(reading.kernel) < 2:
        return None
    first, second = torch.triu_indices(len(reading.kernel), len(reading.kernel), offset=1)
    angles, correlations = reading.angles[first, second], reading.correlations[first, second]
    grid = torch.linspace(0, float(angles.max()), 100, dtype=torch.float64)
    caption = (
        "Each point is a pair of samples. Points above the dashed cosine: the network sees the two inputs as more "
        "alike than they are; all points near one: it hardly tells inputs apart."
    )
    words = ("kernel_against_angle", "Tangent kernel against the angle between inputs", caption)
    labels = ("angle between the inputs (radians)", "correlation of the gradients")
    pairs = Points(numbers(angles), numbers(correlations), "pairs of samples")
    cosine = Line(numbers(grid), numbers(grid.cos()), "cosine: a linear model", True, INK)
    return Figure(*words, *labels, (pairs, *_limit_points(reading), cosine, Reference(0.0)))


def _limit_points(reading: TangentReading) -> tuple[Points, ...]:
    """The same pairs in the limit of this model, where there is one."""
    limit = reading.module_limit
    if not len(limit):
        return ()
    first, second = torch.triu_indices(len(limit), len(limit), offset=1)
    scale = limit.diagonal().sqrt()
    values = (limit / scale[:, None] / scale)[first, second]
    return (Points(numbers(reading.angles[first, second]), numbers(values), "this model at infinite width"),)


def limit_by_depth(column: int, reading: TangentReading) -> Figure | None:
    """Variance of a sample (column 0), correlation of two (1), behind each operation at infinite width; its ends."""
    what, of, end, meaning = _MAPS[column]
    values = reading.limit_maps[:, column]
    shown = values.isfinite() & ((values > 0) | (column == 1))
    if int(shown.sum()) < 2:
        return None
    steps = zip(reading.depth_scales[:MOST_STEPS, 1 + column].tolist(), reading.depth_steps, strict=False)
    known = [(value, name) for value, name in steps if math.isfinite(value) and (column or value > 0)]
    levels = {in_words(value, 2): (value, name) for value, name in known}
    line = Line(numbers(torch.arange(1, len(values) + 1)[shown]), numbers(values[shown]), "infinite width")
    caption = (
        f"The {what} of {of} behind each operation. {meaning}. Lines across: where a repeated step, a nonlinearity and "
        "the matrix behind it, would lead."
    )
    words = (f"limit_{what}_by_depth", f"This model at infinite width: {what} by depth", caption)
    ends = (Reference(value, f"{end} of {name}: {level}") for level, (value, name) in levels.items())
    return Figure(*words, "operation", f"{what} of {of}", (line, *ends), y_log=column == 0)


_MAPS = (
    ("variance", "the first sample", "q*", "A steady rise or fall explodes or dies with more depth"),
    ("correlation", "the first two samples", "c*", "Near one the network hardly tells them apart"),
)
MOST_STEPS, MOST_OPERATIONS = 4, 60  # kinds of nonlinearities, and operations, that are told of
BY_DEPTH = partial(limit_by_depth, 1), partial(limit_by_depth, 0)
FIGURES = (kernel_by_class, kernel_eigenvalues, kernel_against_angle, *BY_DEPTH)


def tangent_section(reading: TangentReading) -> Section:
    """What the tangent kernel says about learning."""
    alignment = reading.alignment
    diagonal, several = reading.kernel.diagonal(), len(reading.kernel) > 1
    error = f" ± {in_words(float(reading.kernel_error.diagonal().mean()), 1)}" if reading.sampled_outputs else ""
    facts = [
        ("samples", str(len(reading.kernel))),
        ("parameters differentiated", f"{reading.parameters:,}"),
        ("condition number", in_words(reading.condition_number)),
        ("effective rank", f"{reading.effective_rank:.1f} of {len(reading.kernel)}"),
        ("largest eigenvalue", in_words(float(reading.eigenvalues[0]))),
        ("mean of the diagonal", in_words(float(diagonal.mean())) + error),
        (
            "spread of the diagonal",
            f"{percent(float(diagonal.std() / diagonal.mean()))} of its mean" if several else "not known",
        ),
        ("alignment with the classes", "no pairs to compare" if alignment is None else f"{alignment:.3f}"),
    ]
    variance, spread = reading.seed_variance
    if not math.isnan(variance):
        foreseen = reading.predicted_variance
        expected = "" if math.isnan(foreseen) else f"; theory expects {in_words(foreseen, 2)}"
        name = f"relative variance over {len(reading.seed_diagonals)} seeds (branches, one output)"
        facts.append((name, f"{in_words(variance, 2)} ± {in_words(spread, 1)}{expected}"))
    if not math.isnan(reading.limit_distance):
        facts.append(("distance from the infinite-width kernel (correlations)", f"{reading.limit_distance:.3f}"))
    if not math.isnan(reading.module_limit_deviation):
        of = f", {len(reading.module_limit)} samples" if len(reading.module_limit) < len(reading.kernel) else ""
        away = f"{percent(reading.module_limit_deviation)} away (norm of the kernel{of})"
        facts.append(("this model at infinite width", away))
    if reading.no_limit:
        facts.append(("this model at infinite width", f"no limit beside it: {reading.no_limit}"))
    if len(reading.limit_maps):
        sizes, alike = (span(*ends) for ends in reading.limit_maps[[0, -1]].T.tolist())
        words = f"first operation to last: variance {sizes}, correlation of two samples {alike}"
        facts.append(("through the depth at infinite width", words))
    for name, row in zip(reading.depth_steps[:MOST_STEPS], reading.depth_scales, strict=False):
        chi, q, c, xi = (in_words(float(value)) for value in row)
        ends = f"variance {q}, correlation {c}, ξ = {xi} steps"
        facts.append((f"depth scale of {name}", f"χ₁ = {chi}; repeated: {ends}"))
    maps = zip(reading.limit_operations, reading.limit_maps[:MOST_OPERATIONS].tolist(), strict=False)
    coupling = ("Batch norm is in training mode: the kernel is that of this batch as a whole.",) * reading.batch_coupled
    rows = tuple(
        {"operation at infinite width": name, "variance": in_words(q), "correlation of two samples": in_words(c)}
        for name, (q, c) in maps
    )
    told: dict[str, Any] = {"facts": tuple(facts), "rows": rows, "notes": (*reading.notes, *coupling)}
    return Section.of(reading, "Tangent kernel", tangent_sentence(reading), FIGURES, **told)


def tangent_sentence(reading: TangentReading) -> str:
    """The kernel in one sentence."""
    if len(reading.kernel) < 2:
        return "One sample was looked at, so nothing is known of the kernel between samples."
    rank = f"its {len(reading.kernel)} samples share {reading.effective_rank:.1f} directions"
    if math.isinf(reading.condition_number):
        return f"The tangent kernel is singular to working precision: {rank}."
    return (
        f"The tangent kernel has condition number {in_words(reading.condition_number)}: gradient descent learns the "
        f"slowest direction that many times more slowly than the fastest; {rank}."
    )


WORDS = rule_words(__file__)
MANY_STEPS = 1e4  # of gradient descent for the slowest direction
FAR_FROM_CONSTANT = 1.0  # relative variance: the kernel's standard deviation over seeds is as large as its mean
WANTED_VARIANCE = 0.1


def judge_kernel_condition(reading: TangentReading) -> Iterator[Finding]:
    """Samples with the same gradient, or how much longer the slowest direction takes than the fastest.

    A singular kernel alone is no fault: that of a network whose head starts at zero, and that of any narrow one, has at
    most as many directions as the last layer has inputs, and one more.
    """
    alike, condition = _pairs_alike(reading), reading.condition_number
    if alike:
        pairs = f"{alike} pair{'s' * (alike > 1)} of different samples ha{'ve' if alike > 1 else 's'}"
        sentence = f"{pairs} the same gradient to working precision: these samples cannot be learned apart."
        yield finding_with(WORDS, "kernel_condition", "warning", sentence, (float(alike), 0.0))
    elif MANY_STEPS < condition < math.inf:
        sentence = (
            f"The tangent kernel has condition number {in_words(condition, 2)}: at the start gradient descent needs "
            "that many steps for the slowest direction of the outputs."
        )
        yield finding_with(WORDS, "kernel_condition", "note", sentence, (condition, MANY_STEPS))


def _pairs_alike(reading: TangentReading) -> int:
    """Pairs of samples with parallel gradients, to working precision, whose inputs are not parallel.

    A correlation is rounded like a product over all parameters; one of samples that differ only in a direction which
    the network does not see is 1 up to that. Where inputs have no angles (tokens) any two may be the same.
    """
    if not reading.angles.numel():
        return 0
    rounding = len(reading.kernel) * torch.finfo(reading.kernel.dtype).eps
    apart = reading.angles.double() > (2 * rounding) ** 0.5  # an angle with a cosine of 1 − rounding
    alike = (reading.correlations.double() >= 1 - rounding) & (reading.kernel.diagonal() > 0) & apart
    return int(alike.triu(1).sum())


def judge_regime(reading: SignalReading) -> Iterator[Finding]:
    """Whether a network of this depth, width and branch size has a kernel of its own from seed to seed."""
    network = equivalent_network(reading)
    if network is None:
        return
    variance = float(kernel_moments(network).relative_variance)
    if not variance > FAR_FROM_CONSTANT:
        return
    sentence = (
        f"Far from the kernel regime: at {network.depth} block{'s' * (network.depth > 1)} of width {network.width} the "
        f"tangent kernel varies from seed to seed by {in_words(math.sqrt(variance), 2)} times its mean."
    )
    numbers, change = (variance, FAR_FROM_CONSTANT), _wider(network, variance)
    yield finding_with(WORDS, "kernel_regime", "note", sentence, numbers, change=change)


def _wider(network: ResNet, variance: float) -> str:
    """Smaller branches, where that helps, and a larger width."""
    goal, ways = advice.branch_scale(network.depth, network.branch_depth).branch_scale, list[str]()
    left = float(kernel_moments(replace(network, branch_scale=goal)).relative_variance)
    if left < variance:
        factor = in_words(math.sqrt(goal / float(network.branch_scale)))  # α is a variance
        leaving = f"which leaves a relative variance of {in_words(left, 2)}"
        ways.append(f"multiply each matrix of the branches by {factor}, {leaving}")
    with suppress(InvalidInputError):
        ways.append(f"use a width of {advice.width(WANTED_VARIANCE, network).width}")
    words = "; or ".join(ways) or "no reasonable width would do it"
    return f"{words[0].upper()}{words[1:]}. A network outside the kernel regime may still train well."


RULES = (
    Rule("kernel_condition", (TangentReading,), judge_kernel_condition),
    Rule("kernel_regime", (SignalReading,), judge_regime),
)


def tangent_scale(reading: TangentReading) -> Scale | None:
    """The condition number of the kernel."""
    if len(reading.kernel) < 2 or math.isnan(reading.condition_number):
        return None
    why = (
        "At 1 all samples are learned equally fast. Gradient descent needs that many times more steps for what it "
        "learns last than for what it learns first."
    )
    return Scale("is the condition number of the kernel", reading.condition_number, 1.0, MANY_STEPS, why)


def tangent_numbers(reading: TangentReading) -> tuple[KeyNumber, ...]:
    """What models are compared by."""
    found = [
        KeyNumber("condition number of the kernel", reading.condition_number, logarithmic=True),
        KeyNumber("effective rank of the kernel", reading.effective_rank),
        KeyNumber("mean of the kernel's diagonal", float(reading.kernel.diagonal().double().mean()), logarithmic=True),
    ]
    if reading.alignment is not None:
        found.append(KeyNumber("alignment with the classes", reading.alignment))
    return tuple(found)


TANGENT_OVERLAYS = (
    Overlay(
        "kernel_eigenvalues",
        "Eigenvalues of the tangent kernel",
        "Relative to the largest; a steep fall means that some directions are learned very much more slowly.",
        ("rank", "relative eigenvalue"),
        lambda reading: Curve(torch.arange(1, len(reading.kernel) + 1), reading.eigenvalues / reading.eigenvalues[0]),
    ),
)


VIEW = ReadingView(
    TangentReading, TangentLens, tangent_section, FIGURES, RULES, tangent_numbers, TANGENT_OVERLAYS, scale=tangent_scale
)
