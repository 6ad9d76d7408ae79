"""Look at a model through every lens and put what was seen into a report."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from skiplens.core.errors import SkiplensError
from skiplens.core.progress import Progress, silent
from skiplens.core.randomness import Randomness
from skiplens.core.untouched import untouched
from skiplens.data.batch import take
from skiplens.findings import find
from skiplens.lenses.catalogue import choose
from skiplens.lenses.lens import Subject
from skiplens.readings import Reading
from skiplens.reports.report import Problem, Report
from skiplens.residual.trial import require_module, try_call

DEFAULT_SAMPLES = 64
INTERRUPTED = "interrupted from the keyboard"


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
        data: `(inputs, targets)` or an iterable of such batches; the first 64 samples are looked at.
        lenses: Names of lenses; all of them if none is named.
        name: What to call the model on the page; its class name if not given.
        seed: Names every random draw.
        progress: Called as the work goes on.

    A lens that cannot measure this model is listed with its reason among the report's `problems`; so is one that was
    interrupted from the keyboard, and the report holds what was finished.
    """
    subject = Subject(require_module(model), take(data, DEFAULT_SAMPLES), name or type(model).__name__)
    with untouched(model):  # inputs that do not fit are an error, not a page of problems
        try_call(model, subject.batch.arguments())
    readings: list[Reading] = []
    problems: list[Problem] = []
    for lens in choose(tuple(lenses)):
        try:
            readings.append(lens(subject, Randomness(seed).child(lens.name), progress))
        except SkiplensError as error:
            problems.append(Problem(lens.name, str(error)))
        except KeyboardInterrupt:
            problems.append(Problem(lens.name, f"{INTERRUPTED}; what follows it was not measured."))
            break
    return Report(subject.name, tuple(readings), tuple(problems), find(readings))
