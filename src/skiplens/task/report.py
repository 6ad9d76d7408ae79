"""The task lens and its section: what is asked of the network, and how it starts."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from skiplens.base.progress import Progress, silent
from skiplens.base.randomness import Randomness
from skiplens.graph.lens import Lens, Subject
from skiplens.plots.section import KeyNumber, Quantity, ReadingView, Section, number_in_words, provenance_of
from skiplens.readings.reading import Provenance
from skiplens.task.findings import RULES
from skiplens.task.measure import measure_task
from skiplens.task.reading import TaskReading

LABEL, START = "looking at data and loss", "loss at the start over that of no answer"


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
    facts = (
        ("samples", f"{reading.samples} through the network, {reading.seen} looked at"),
        (f"loss at the start ({reading.loss_name.replace('_', ' ')})", known["loss"]),
        ("loss of no answer (outputs zero)", known["no_answer"]),
        ("loss of a guess (the best constant answer)", known["guess"]),
        ("outputs", f"{reading.answers.replace('_', '-')} of size {known['output_size']}"),
        ("classes that occur", occurring),
        ("inputs", f"{known['low']} to {known['high']}, mean {known['mean']}, standard deviation {known['std']}"),
        ("size of what reaches the first weights", known["entry_size"]),
        ("share of its power that samples have in common", known["entry_common"]),
        ("share of features that never change", known["constant"]),
        ("exact copies", str(reading.copies)),
        ("samples with equal inputs and another target", str(reading.contradictions)),
        ("targets of neighbours more alike than chance by (standard deviations)", known["neighbours"]),
    )
    title, origin = "Data and loss", provenance_of(reading)
    return Section(reading.kind, title, task_sentence(reading), facts=facts, provenance=origin)


def task_sentence(reading: TaskReading) -> str:
    """The start in one sentence."""
    start = "" if math.isnan(reading.start) else f", {reading.start:.3g} times that of no answer"
    guess = "" if math.isnan(reading.guess) else f"; the best constant answer has {_in_words(reading.guess)}"
    return f"The loss starts at {_in_words(reading.loss)}{start}{guess}."


def _in_words(value: float) -> str:
    return "not known" if math.isnan(value) else number_in_words(value)


def task_numbers(reading: TaskReading) -> tuple[KeyNumber, ...]:
    """What models are compared by."""
    return () if math.isnan(reading.start) else (KeyNumber(START, reading.start, logarithmic=True),)


QUANTITIES = {"loss_at_start": Quantity(START, lambda finding, reading: float(reading.start))}
VIEW = ReadingView(TaskReading, TaskLens, task_section, rules=RULES, key_numbers=task_numbers, quantities=QUANTITIES)
