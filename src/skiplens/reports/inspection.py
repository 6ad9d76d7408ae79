"""Look at a model through every lens and put what was seen into a report."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from skiplens.core.errors import SkiplensError
from skiplens.core.progress import Progress, silent
from skiplens.core.randomness import Randomness
from skiplens.core.shortage import halving_memory
from skiplens.findings import find
from skiplens.lenses.catalogue import choose
from skiplens.lenses.lens import Lens, Subject
from skiplens.lenses.preparation import prepared
from skiplens.readings import Reading
from skiplens.reports.report import Problem, Report
from skiplens.residual.trial import first_line, require_module

DEFAULT_SAMPLES = 64
INTERRUPTED = "interrupted from the keyboard"
UNEXPECTED = "ended in an error that it should have foreseen; the other lenses went on. Please report it"


def inspect(
    model: nn.Module,
    data: Any,
    *,
    lenses: Sequence[str] = (),
    name: str | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Report:
    """A report of what the lenses see in `model` on `data`, with findings; the model is left bit for bit as it was.

    Args:
        model: Any `nn.Module`.
        data: `(inputs, targets)` or an iterable of such batches; the first 64 samples are looked at, fewer
            where a pass through the model is costly.
        lenses: Names of lenses; all of them if none is named.
        name: What to call the model on the page; its class name if not given.
        seed: Names every random draw.
        progress: Called as the work goes on.

    A lens that cannot measure this model is listed with its reason among the report's `problems`; so is one that was
    interrupted from the keyboard, and the report holds what was finished.
    """
    chosen = choose(tuple(lenses))
    subject = prepared(require_module(model), data, DEFAULT_SAMPLES, name or type(model).__name__)
    readings: list[Reading] = []
    problems: list[Problem] = []
    for lens in chosen:
        try:
            readings.append(_look(lens, subject, Randomness(seed).child(lens.name), progress))
        except SkiplensError as error:
            problems.append(Problem(lens.name, str(error)))
        except KeyboardInterrupt:
            problems.append(Problem(lens.name, f"{INTERRUPTED}; what follows it was not measured."))
            break
        except Exception as error:  # what the other lenses saw must not be lost with it
            problems.append(Problem(lens.name, f"{UNEXPECTED} ({type(error).__name__}: {first_line(error)})"))
    return Report(subject.name, tuple(readings), tuple(problems), find(readings))


def _look(lens: Lens, subject: Subject, randomness: Randomness, progress: Progress) -> Reading:
    """The reading; where memory runs out it is taken again in smaller pieces."""

    def told(share: float) -> None:
        progress(f"{lens.name}: out of memory, again with {share:.2%} of the budget", 0, 1)

    return halving_memory(lambda: lens(subject, randomness, progress), told)
