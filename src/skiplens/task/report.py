"""The task lens and its section: what is asked of the network, and how it starts."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from skiplens.base import Progress, Randomness, in_words, silent, span, times
from skiplens.graph.lens import Lens, Subject
from skiplens.plots.figure import Bars, Figure, numbers
from skiplens.plots.section import KeyNumber, Quantity, ReadingView, Scale, Section
from skiplens.readings.reading import Provenance
from skiplens.task.findings import RULES, SCORES, SQUARES
from skiplens.task.measure import measure_task
from skiplens.task.reading import TaskReading

LABEL, START = "looking at data and loss", "loss at the start over that of no answer"
FAR = 50.0


@dataclass(frozen=True)
class TaskLens(Lens):
    """Inputs, targets and the loss at the start."""

    name: ClassVar[str] = "task"
    question: ClassVar[str] = "Do data and loss make sense before the first step?"

    memory: int | None = None
    """Bytes for passes through the model; half of what is free if not given."""

    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress = silent) -> TaskReading:
        """Call the model once or twice; only shuffles of the targets are drawn at random."""
        clock = Provenance.begin({"lens": self.name, "model": subject.name}, randomness.seed, subject.device)
        progress(LABEL, 0, 1)
        model, batch, seed = subject.model, subject.batch, randomness.seed
        reading = measure_task(model, batch, subject.loss, seen=subject.seen, seed=seed, memory=self.memory)
        progress(LABEL, 1, 1)
        return replace(reading, provenance=clock.end())


def task_section(reading: TaskReading) -> Section:
    """Data and loss in words."""
    known = {name: _in_words(value) for name, value in reading.values().items() if isinstance(value, float)}
    occurring = f"{int((reading.counts > 0).sum())} of {reading.classes}" if len(reading.counts) else "not counted"
    seen = f"{reading.samples} through the network, {reading.seen} looked at"
    ends = span(reading.low, reading.high)
    facts = (
        ("samples", seen if reading.seen != reading.samples else str(reading.seen)),
        (f"loss at the start ({reading.loss_name.replace('_', ' ')})", known["loss"]),
        ("loss of no answer (outputs zero)", known["no_answer"]),
        ("loss of a guess (the best constant answer)", known["guess"]),
        ("outputs", f"{reading.answers.replace('_', '-')} of size {known['output_size']}"),
        ("classes that occur", occurring),
        ("inputs", f"{ends}, mean {known['mean']}, standard deviation {known['std']}"),
        ("size of what reaches the first weights", known["entry_size"]),
        ("share of its power that samples have in common", known["entry_common"]),
        ("share of features that never change", known["constant"]),
        ("exact copies", str(reading.copies)),
        ("samples with equal inputs and another target", str(reading.contradictions)),
        ("targets of neighbours more alike than chance by (standard deviations)", known["neighbours"]),
    )
    return Section.of(reading, "Data and loss", task_sentence(reading), FIGURES, facts=facts)


def task_sentence(reading: TaskReading) -> str:
    """The start in one sentence."""
    start = "" if math.isnan(reading.start) else f", which is {in_words(reading.start)} times that of no answer"
    guess = "" if math.isnan(reading.guess) else f"; the best constant answer has {_in_words(reading.guess)}"
    return f"The loss starts at {_in_words(reading.loss)}{start}{guess}."


def _in_words(value: float) -> str:
    return "not known" if math.isnan(value) else in_words(value)


def losses_at_start(reading: TaskReading) -> Figure | None:
    """The loss before the first step beside those of no answer and of a guess."""
    losses = {"at the start": reading.loss, "of no answer": reading.no_answer, "of a guess": reading.guess}
    known = {name: value for name, value in losses.items() if math.isfinite(value)}
    text = "A network that knows nothing should start near the loss of no answer, and must fall below that of a guess."
    words = ("losses_at_start", "Loss before the first step", text, "", "loss")
    if len(known) < 2:
        return None
    far = min(known.values()) > 0 and max(known.values()) > FAR * min(known.values())  # bars too small to be seen
    return Figure(*words, (Bars(tuple(known), numbers(tuple(known.values()))),), y_log=far)


def task_scale(reading: TaskReading) -> Scale | None:
    """The loss at the start, where outputs are scores or numbers."""
    if math.isnan(reading.start) or reading.answers != "scores" or reading.form == "log_probabilities":
        return None
    why = (
        "Outputs of zero give the loss of no answer. A loss far above it comes from outputs that are too large, and "
        "the first steps are spent on making them smaller."
    )
    allowed = (SQUARES if reading.form == "numbers" else SCORES)[0]
    return Scale("the loss of no answer is where the loss starts", reading.start, 1.0, allowed, why, times)


def task_numbers(reading: TaskReading) -> tuple[KeyNumber, ...]:
    """What models are compared by."""
    return () if math.isnan(reading.start) else (KeyNumber(START, reading.start, logarithmic=True),)


QUANTITIES = {
    "loss_at_start": Quantity(START, lambda finding, reading: float(reading.start)),
    "heavy_dropout": Quantity("largest share of values dropped", lambda finding, reading: float(reading.dropped)),
}
FIGURES = (losses_at_start,)
VIEW = ReadingView(
    TaskReading, TaskLens, task_section, FIGURES, RULES, task_numbers, quantities=QUANTITIES, scale=task_scale
)
