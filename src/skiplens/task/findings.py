"""What may be wrong with what is asked of a network: its inputs, its targets, and the loss at the start."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from skiplens.base.words import in_words, percent, span
from skiplens.edits.remedies import code_of
from skiplens.readings.finding import Finding, Remedy, Rule, Severity, finding_with, listed, rule_words
from skiplens.task.measure import COMMON, DROPPED, FEW, LARGE, SMALL
from skiplens.task.reading import TaskReading

SCORES = 2.0, 20.0  # loss over that of no answer where softmax settles on single classes, and at ten times the scores
SQUARES = 10.0, 101.0  # 1 + r²: outputs three and ten times as large as the targets
LARGE_TARGETS = 100.0
INSENSITIVE = 0.1  # change of the outputs, relative to their spread, below which the size of the inputs does not matter
RARE = 1e-3  # a chance that counts as none
MANY_COPIES = 0.1
QUARTER = 0.25  # of a guess: a network that stays above it has not learned
CHANCE = 2.33  # standard deviations: one in a hundred shuffles has more
_found = partial(finding_with, rule_words(__file__))


def judge_start(reading: TaskReading) -> Iterator[Finding]:
    """A loss far above that of no answer."""
    squares, ratio, size = reading.form == "numbers", reading.start, reading.output_size
    allowed, far = SQUARES if squares else SCORES
    if reading.answers == "scores" and reading.form != "log_probabilities" and ratio > allowed:
        # Outputs become as large as the targets, whose mean square is the loss of no answer; scores get size one.
        factor = float(f"{(math.sqrt(reading.no_answer) if squares else 1.0) / (size or math.nan):.3g}")
        remedy = Remedy("scale_parameters", {"factors": dict.fromkeys(reading.head, factor)})
        sentence = (
            f"The loss starts at {in_words(reading.loss)}, which is {in_words(ratio)} times that of no answer at all "
            f"({in_words(reading.no_answer)}): the outputs, of size {in_words(size)}, are too large."
        )
        severity: Severity = "warning" if ratio > far else "note"
        mended: dict[str, Any] = {"where": reading.head, "remedy": remedy, "code": code_of(remedy)}
        mended = mended if reading.head and 0 < factor < 1 else {}
        yield _found("loss_at_start", severity, sentence, (ratio, allowed), **mended)


def judge_answers(reading: TaskReading) -> Iterator[Finding]:
    """Outputs that are squashed twice: in the model and in the loss."""
    if least := least_loss(reading):
        twice = "a softmax, and so does the loss" if reading.form == "classes" else "a sigmoid, and so does the loss"
        twice = "a sigmoid, and the loss takes a softmax of that" if reading.answers == "sigmoids" else twice
        sentence = f"The model ends in {twice}: no sample's loss can fall below {in_words(least)}."
        code = "loss = lambda outputs, targets: torch.nn.functional.nll_loss(outputs.log(), targets)"
        code = code if reading.form == "classes" else "loss = torch.nn.functional.binary_cross_entropy"
        code = "" if reading.answers == "sigmoids" else code
        yield _found("squashed_outputs", "warning", sentence, (least, 0.0), code=code)


def judge_cut(reading: TaskReading) -> Iterator[Finding]:
    """Scores that cannot be negative."""
    if reading.answers == "cut_scores":
        sentence = "The model ends in a ReLU: scores below zero are cut, and what is cut for all samples stays at zero."
        yield _found("cut_scores", "warning", sentence, (1.0, 0.0))


def least_loss(reading: TaskReading) -> float:
    """What no sample's loss can fall below because the model squashes its scores; 0 where it does not."""
    squashes = reading.form in ("classes", "binary") and reading.answers in ("probabilities", "sigmoids")
    return math.log(1 + (max(2, reading.classes) - 1) / math.e) if squashes else 0.0


def judge_bound(reading: TaskReading) -> Iterator[Finding]:
    """Scores for a loss of log-probabilities."""
    if reading.form == "log_probabilities" and reading.answers != "log_probabilities":
        sentence = f"The loss takes log-probabilities but gets {reading.answers}: it falls without anything learned."
        code = "loss = torch.nn.functional.cross_entropy"
        yield _found("unbounded_loss", "critical", sentence, (reading.loss, 0.0), code=code)


def judge_inputs(reading: TaskReading) -> Iterator[Finding]:
    """Inputs of unusual size, or with nearly all in common, where the first weights take them and the network cares."""
    size, common = reading.entry_size, reading.entry_common
    if reading.change > INSENSITIVE and not _constant(reading):
        words, numbers = f"they reach the first weights with size {in_words(size)} instead of 1", (size, LARGE)
        if size <= LARGE:
            words, numbers = f"{percent(common)} of their power is in what they have in common", (common, COMMON)
        numbers = (size, SMALL) if size < SMALL else numbers
        sentence = (
            f"The inputs are not standardised: from {span(reading.low, reading.high)}, mean "
            f"{in_words(reading.mean)}, standard deviation {in_words(reading.std)}; {words}."
        )
        code = f"inputs = (inputs - {reading.mean:.6g}) / {reading.std:.6g}"
        yield _found("inputs_scale", "warning", sentence, numbers, code=code)


def _constant(reading: TaskReading) -> bool:
    return reading.seen > FEW and reading.copies == reading.seen - 1


def judge_constant(reading: TaskReading) -> Iterator[Finding]:
    """Samples that are all the same."""
    if _constant(reading):
        sentence = f"All {reading.seen} samples have the same inputs: only one answer to all of them can be learned."
        yield _found("constant_inputs", "critical", sentence, (1.0, 2.0))


def judge_targets(reading: TaskReading) -> Iterator[Finding]:
    """Numbers to learn that are far from where outputs start."""
    size = math.sqrt(reading.no_answer) if reading.form == "numbers" else 0.0
    common = 1 - reading.guess / size**2 if size else 0.0
    if size > LARGE_TARGETS or common > COMMON:
        sentence = (
            f"The targets have size {in_words(size)} and {percent(common)} of their power in their mean: outputs, "
            "which start near zero, have a long way to go."
        )
        numbers = (size, LARGE_TARGETS) if size > LARGE_TARGETS else (common, COMMON)
        code = "targets = (targets - targets.mean(0)) / targets.std(0)"
        yield _found("targets_scale", "warning", sentence, numbers, code=code)


def judge_labels(reading: TaskReading) -> Iterator[Finding]:
    """Same inputs with different targets."""
    if reading.floor > 0 and not _constant(reading):
        sentence = (
            f"{reading.contradictions} of {reading.seen} samples have the inputs of one with another target: the loss "
            f"cannot fall below {in_words(reading.floor, 2)} of a guess."
        )
        severity: Severity = "warning" if reading.floor >= QUARTER else "note"
        yield _found("contradicting_labels", severity, sentence, (reading.floor, QUARTER))


def judge_copies(reading: TaskReading) -> Iterator[Finding]:
    """Samples that are there more than once."""
    share = reading.copies / reading.seen
    if share > MANY_COPIES and not _constant(reading):
        sentence = f"{reading.copies} of {reading.seen} samples are exact copies of others."
        yield _found("duplicated_samples", "note", sentence, (share, MANY_COPIES))


def judge_neighbours(reading: TaskReading) -> Iterator[Finding]:
    """Targets that differ between neighbours as much as between any two samples."""
    if reading.neighbours < CHANCE and not reading.contradictions:
        sentence = (
            f"Among {reading.seen} samples neighbouring inputs have targets no more alike than by chance "
            f"({reading.neighbours:.1f} standard deviations): labels may be shuffled, or depend on what distances "
            "between inputs do not show."
        )
        yield _found("unexplained_labels", "note", sentence, (reading.neighbours, CHANCE))


def judge_classes(reading: TaskReading) -> Iterator[Finding]:
    """Classes that never occur, although the samples are enough to meet them all."""
    total, classes, present = int(reading.counts.sum()), reading.classes, int((reading.counts > 0).sum())
    if present < classes:
        alone = present == 1
        chance = float(classes) ** (1 - total) if alone else classes * (1 - 1 / classes) ** total
        what = "all have one class" if alone else f"{classes - present} of {classes} classes never occur"
        sentence = f"Of the first {total} samples {what}: data that are sorted, or a model with too many outputs."
        if chance < RARE:
            yield _found("missing_classes", "note", sentence, (chance, RARE))


def judge_mixture(reading: TaskReading) -> Iterator[Finding]:
    """Samples that change each other's answers."""
    if reading.mixes:
        sentence = "The answer to a sample depends on the other samples of its batch, and not through a batch norm."
        yield _found("mixed_samples", "warning", sentence, (1.0, 0.0))


def judge_dropouts(reading: TaskReading) -> Iterator[Finding]:
    """Dropouts that leave next to nothing."""
    if names := reading.dropouts:
        sentence = f"In training {percent(reading.dropped)} of the values are dropped at {listed(names)}."
        remedy = Remedy("set_drop_rates", {"rates": dict.fromkeys(names, float(f"{1 - reading.dropped:.4g}"))})
        numbers = (reading.dropped, DROPPED)
        yield _found("heavy_dropout", "warning", sentence, numbers, where=names, remedy=remedy, code=code_of(remedy))


_JUDGES = {"constant_inputs": judge_constant, "squashed_outputs": judge_answers, "cut_scores": judge_cut}
_JUDGES |= {"unbounded_loss": judge_bound, "inputs_scale": judge_inputs, "targets_scale": judge_targets}
_JUDGES |= {"contradicting_labels": judge_labels, "loss_at_start": judge_start, "duplicated_samples": judge_copies}
_JUDGES |= {"heavy_dropout": judge_dropouts, "mixed_samples": judge_mixture}
_JUDGES |= {"missing_classes": judge_classes, "unexplained_labels": judge_neighbours}
RULES = tuple(Rule(name, (TaskReading,), judge) for name, judge in _JUDGES.items())


def task_findings(reading: TaskReading) -> list[Finding]:
    """What all rules of this lens find."""
    return [finding for rule in RULES for finding in rule([reading])]
