"""Look at a model through every lens and put what was seen into a report."""

import itertools
import json
import math
import traceback
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Any, TypeVar

import torch
from torch import nn

from skiplens.base import errors
from skiplens.base.files import is_folder, read_json, write_content, written_together
from skiplens.base.memory import CEILING, free_bytes, give_back, memory_retry
from skiplens.base.preserve_state import checkpoints_off, dropout_off, preserve_random_state, threads
from skiplens.base.progress import Progress, silent, stage, usual
from skiplens.base.randomness import Randomness
from skiplens.edits.remedies import words_of
from skiplens.graph.batch import as_batches
from skiplens.graph.dissect import chosen_blocks
from skiplens.graph.inputs import first_line, require_module
from skiplens.graph.lens import OPERATIONS, PER_SECOND, Lens, Subject, prepared, require_room
from skiplens.graph.loss import Loss, loss_name, loss_rule
from skiplens.graph.modules import require_submodule
from skiplens.improvement.best_change import BestChange, best_change
from skiplens.improvement.drawing import drawing_of
from skiplens.improvement.reading import Improvement
from skiplens.plots.matplotlib_file import save_card, save_drawing, save_figure
from skiplens.plots.section import Section
from skiplens.readings.file import from_json, to_json
from skiplens.readings.finding import Finding, listed, verdict
from skiplens.readings.reading import Reading
from skiplens.report.during_training.page import monitor_drawing, monitor_sentence
from skiplens.report.during_training.record import MonitorReading
from skiplens.report.lenses import (
    JUDGED,
    LENSES,
    choose,
    counted,
    figures_of,
    find,
    guarded_section,
    has_section,
    samples_of,
    severity_of,
    spared,
)
from skiplens.report.notebook import inline
from skiplens.report.page import Problem, opening, page
from skiplens.report.verification_reading import VerificationReading, race_sentence
from skiplens.signal.findings import FRESH_STATISTICS
from skiplens.trainability.reading import FORECAST_RULE, Forecast
from skiplens.trainability.report import COST, ForecastLens

DEFAULT_SAMPLES = 64
KEPT_BATCHES = 32  # of data that can be gone through once
NOTHING_SERIOUS = "Nothing serious was found in what was measured."
ENOUGH = 4  # samples for a word of health: what half of all samples show, four miss in one case of 16
SECONDS = 60
ROOM, VECTORS = 2**31, 3  # bytes that a lens plans with on a processor, beside so many numbers for each parameter
SHOWN, WIDTH = 5, 240  # findings and characters of a line on one screen
INTERRUPTED = "interrupted from the keyboard"
DROPPING = (
    "Dropout was switched off in {places} ({names}) while the model was measured, and left on in the forecast; "
    "batch norm stayed in its mode."
)
UNEXPECTED = "ended in an error that it should have foreseen; the other lenses went on. Please report it"
FOR_OTHER_MODELS = (
    errors.CoupledSamplesError,
    errors.NoFrozenFormError,
    errors.NoTargetsError,
    errors.NotResidualError,
    errors.NotTwiceDifferentiableError,
)
"""What a lens says of a model or data that it is not made for; nothing has failed then."""
REFUSALS = {
    "modified by an inplace operation": "In this mode the model writes in place over a value that its own gradient "
    "needs, so it has none. Try its other mode (model.train() or model.eval()), or make a new tensor there."
}
"""What torch says of models that it cannot differentiate, and what that means."""
R = TypeVar("R", bound=Reading)


@dataclass(frozen=True, repr=False)
class Report:
    """Readings of one model and what was found in them, ready to be looked at.

    Example:
        report = sl.inspect(model, data)
        report.save("report.html")
    """

    title: str
    readings: tuple[Reading, ...]
    problems: tuple[Problem, ...] = ()
    findings: tuple[Finding, ...] = ()

    def reading(self, kind: type[R]) -> R | None:
        """The reading of that kind, if it was taken."""
        return next((reading for reading in self.readings if isinstance(reading, kind)), None)

    def __str__(self) -> str:
        """The report on one screen: the verdict, the first findings, a sentence of each lens, and what is missing."""
        found = [f"{finding.severity}: {finding.sentence} {finding.change}" for finding in self.findings[:SHOWN]]
        more = [f"… and {len(self.findings) - SHOWN} more findings."] * (len(self.findings) > SHOWN)
        seen = [f"{section.title}: {section.sentence}" for section in self.sections()]
        missing = [f"not measured: {lenses} ({message})" for lenses, message in self.missing]
        lines = [f"{self.title}: {self.verdict}", self.advice, *found, *more, *seen, spared(self.readings), *missing]
        return "\n".join(shorten(line, WIDTH, placeholder=" …") for line in filter(None, lines))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        drawing = drawing_of(self.readings, self.findings)
        return inline(self.title, (self.headline, self.advice), drawing, self.findings)

    @property
    def verdict(self) -> str:
        """What is expected of it, then that it is healthy, its most severe finding, or what was not measured."""
        improved, expected = self.reading(Improvement), self.reading(Forecast)
        if improved is not None:
            return improved.sentence
        if expected is None:
            return self._health
        if expected.is_bad and not any(finding.severity != "note" for finding in self._others):
            known = expected.cause.sentence if expected.cause else "No rule found what limits it."
            return f"{expected.sentence} {known}"
        return f"{expected.sentence} {self._health}"

    @property
    def advice(self) -> str:
        """The change to begin with and what came or may come of it, in words; '' where nothing calls for one."""
        heading, change, promise, beside, _ = self._advised
        return f"{heading}: {change} {promise} {beside}".strip() if change else ""

    @property
    def _advised(self) -> tuple[str, str, str, str, str]:
        """The change to begin with: heading, change, what is known of it, what else was tried, code.

        A race tells more than a pilot.
        """
        races = {r.rule: r for r in self.readings if isinstance(r, VerificationReading) and r.seeds}
        found, helps = self.reading(BestChange), {rule for rule, race in races.items() if race.outcome == "helps"}
        if found is None:
            return ("", "", "", "", "")
        for finding in self.findings if found.rule not in helps else ():  # the worst first
            if finding.rule in helps and finding.remedy is not None:
                words, proof = words_of(finding.remedy), race_sentence(races[finding.rule])
                return "What to change first", f"{words[:1].upper()}{words[1:]}.", proof, "", finding.code
        proof = race_sentence(races[found.rule]) if found.rule in races else found.promise
        is_refuted = found.rule not in helps if found.rule in races else found.gradients > 0 and not found.helps
        return f"What {'was tried' if is_refuted else 'to change'} first", found.change, proof, found.beside, found.code

    @property
    def _others(self) -> tuple[Finding, ...]:
        """What was found besides the forecast, which is told first."""
        return tuple(finding for finding in self.findings if finding.rule != FORECAST_RULE)

    @property
    def headline(self) -> str:
        """The verdict without the sentence of a finding, which is told beside its change."""
        expected, serious = self.reading(Forecast), [found for found in self._others if found.severity != "note"]
        told = serious or (expected is not None and expected.is_bad and expected.cause is not None)
        if not told or self.reading(Improvement) is not None:
            return self.verdict
        if expected is None:
            few, colon, _ = serious[0].sentence.partition(": ")
            return few if colon else serious[0].rule.replace("_", " ").capitalize()
        if not serious:
            return expected.sentence
        count = sum(found.severity == serious[0].severity for found in serious)
        noun = "warning" if serious[0].severity == "warning" else "critical finding"
        found = f", but with {'a' if count == 1 else count} {noun}{'s' * (count > 1)}:" * (not expected.is_bad)
        return expected.sentence.replace(":", found or ":", 1)

    def change_with_proof(self, finding: Finding) -> str:
        """What a finding asks for, and what came of trying it where it was tried."""
        proofs = (r for r in self.readings if isinstance(r, VerificationReading) and r.rule == finding.rule)
        return " ".join([finding.change, *map(race_sentence, proofs)])

    @property
    def told(self) -> tuple[Finding, ...]:
        """The findings that are told one by one; the forecast has been told, unless it alone knows the cause."""
        expected = self.reading(Forecast)
        cause = expected.cause if expected else None
        known = cause is None or cause.rule in {finding.rule for finding in self._others}
        return self._others if known else self.findings

    @property
    def _health(self) -> str:
        if not self.readings:
            return "Nothing could be measured."
        if self._only_watched is not None:
            return monitor_sentence(self._only_watched)
        if any(finding.severity != "note" for finding in self._others):
            return verdict(self._others)
        missing = [problem for problem in self.problems if problem.lens in JUDGED]
        taken = sum(self.reading(kind) is not None for kind in JUDGED.values())
        if missing or self._few:
            enough = f"{taken - len(self._few)} of {taken + len(missing)}"
            return f"Not enough measured ({enough}): {self._reasons} {NOTHING_SERIOUS}"
        if self._failed:
            return f"Not known to be healthy: {self._reasons} {NOTHING_SERIOUS}"
        fresh = next((finding for finding in self._others if finding.rule == FRESH_STATISTICS), None)
        if fresh is not None:
            return f"Not known to be healthy: {fresh.sentence} {fresh.change}"
        if not self.problems:
            part = f" in what was looked at ({taken} of {len(JUDGED)} lenses)" if taken < len(JUDGED) else ""
            return verdict(self._others).replace("Healthy", f"Healthy{part}")
        return f"Healthy as far as could be measured: {self._reasons}"

    @property
    def _only_watched(self) -> MonitorReading | None:
        """What a monitor saw, where nothing else was looked at that could be called healthy."""
        judged = any(self.reading(kind) is not None for kind in JUDGED.values())
        return None if judged or self.findings else self.reading(MonitorReading)

    @property
    def _reasons(self) -> str:
        """Which lenses did not finish, and which cannot look here."""
        others = tuple(problem.lens for problem in self.problems if not problem.failed)
        failed = f"the lens{'es' * (len(self._failed) > 1)} {listed(self._failed)} did not finish" * bool(self._failed)
        unfit = f"{listed(others)} cannot look at this model with this data" * bool(others)
        few = f"{listed(self._few)} had fewer than {ENOUGH} samples" * bool(self._few)
        return f"{'; '.join(filter(None, (failed, unfit, few)))}."

    @property
    def missing(self) -> tuple[tuple[str, str], ...]:
        """The lenses that gave nothing, those with one reason together, and the reason."""
        reasons = dict.fromkeys(problem.message for problem in self.problems)
        return tuple((", ".join(p.lens for p in self.problems if p.message == told), told) for told in reasons)

    @property
    def _few(self) -> tuple[str, ...]:
        """The lenses whose samples are too few to call a network healthy."""
        few = {type(reading) for reading in self.readings if (samples_of(reading) or ENOUGH) < ENOUGH}
        return tuple(name for name, kind in JUDGED.items() if kind in few)

    @property
    def _failed(self) -> tuple[str, ...]:
        return tuple(problem.lens for problem in self.problems if problem.failed)

    def sections(self) -> tuple[Section, ...]:
        """One section a reading, in the order they were taken, each with its samples and its worst finding."""
        shown = [(reading, guarded_section(reading)) for reading in self.readings if has_section(reading)]
        return tuple(
            replace(
                section,
                sentence=f"{section.sentence} {counted(reading)}".strip(),
                severity=severity_of(reading, self.findings),
            )
            for reading, section in shown
        )

    def save(self, path: Path | str) -> Path:
        """Write the page to `path`: one HTML file that needs nothing else."""
        path = Path(path)
        if path.is_dir():
            raise errors.InvalidInputError(f"{path} is a folder; name the file, e.g. {path / 'report.html'}.")
        write_content(path, self.to_html())
        return path

    def to_html(self) -> str:
        """The page as text."""
        top = replace(opening(self.headline, self.told, self.readings), advice=self._advised)
        unknown = self._only_watched is not None or self._health.startswith(("Not", "Nothing"))
        top = replace(top, severity=top.severity or "unknown" * unknown)
        drawing = drawing_of(self.readings, self.findings)
        if drawing is None and self._only_watched is not None:
            drawing = monitor_drawing(self._only_watched)
        return page(self.title, top, self.sections(), self.problems, self.to_json(), drawing)

    def write(self, folder: Path | str) -> Path:
        """Write `report.html`, `readings.json` and `figures/` into `folder`; returns the page's path."""
        with written_together(Path(folder)) as beside:
            problems = [problem for reading in self.readings for problem in _save_figures(reading, beside / "figures")]
            drawing = drawing_of(self.readings, self.findings)
            if drawing is not None:
                save_drawing(drawing, *(beside / "figures" / f"network.{ending}" for ending in ("png", "svg")))
                save_card(drawing, self.title, opening(self.headline, self.told).card, beside / "card.png")
            whole = replace(self, problems=(*self.problems, *problems))
            text = json.dumps(whole.to_json(), indent=1, allow_nan=False, ensure_ascii=False)
            write_content(beside / "readings.json", text)
            whole.save(beside / "report.html")
        return Path(folder) / "report.html"

    def to_json(self) -> dict[str, Any]:
        """Everything in the report in words that JSON has."""
        return {
            "title": self.title,
            "verdict": self.verdict,
            "findings": [finding.to_json() for finding in self.findings],
            "readings": [to_json(reading) for reading in self.readings],
            "problems": [asdict(problem) for problem in self.problems],
        }

    @classmethod
    def load(cls, path: Path | str) -> "Report":
        """The report whose `readings.json` is at `path` (the file or its folder); it can be drawn and saved again."""
        path = Path(path)
        path = path / "readings.json" if is_folder(path) else path
        try:
            content = read_json(path)
            readings = tuple(from_json(values) for values in content["readings"])
            problems = tuple(Problem(**problem) for problem in content["problems"])
            if "findings" not in content:  # a file from before there were any is judged now
                return cls(content["title"], readings, problems, find(readings))
            findings = tuple(Finding.from_json(values) for values in content["findings"])
            return cls(content["title"], readings, problems, findings)
        except _NO_REPORT as error:
            raise errors.InvalidInputError(f"{path} does not hold the readings of a report: {error}.") from error


@checkpoints_off()
@preserve_random_state()  # a loader may draw
def inspect(  # noqa: PLR0913 - the model, its data, and keywords of which each has a default
    model: nn.Module,
    data: Any,
    *,
    lenses: Sequence[str] = (),
    blocks: Sequence[str] = (),
    loss: Loss = None,
    name: str | None = None,
    seed: int = 0,
    samples: int | None = None,
    minutes: float | None = None,
    pilot: bool = True,
    progress: Progress = silent,
) -> Report:
    """A report of what the lenses see in `model` on `data`, with findings; the model is left bit for bit as it was.

    Args:
        model: Any `nn.Module`.
        data: A batch in any form (`(inputs, targets)`, a mapping with labels, inputs alone), an iterable of batches,
            or a `Dataset`; the first 64 samples are looked at, fewer where a pass through the model is costly.
        lenses: Names of lenses; all of them if none is named.
        blocks: Names of modules, to overrule where residual joins are looked for; everywhere if none is named.
        loss: A name (``"cross_entropy"``, ``"mse"``) or a function (outputs, targets) -> scalar for all that takes a
            loss; by default cross-entropy where targets are classes and the mean square where they are numbers.
        name: What to call the model on the page; its class name if not given.
        seed: Names every random draw.
        samples: How many samples each lens looks at if it can afford them; by default each takes what it needs.
        minutes: About how long all lenses together may take on two cores; they choose their samples by it.
        pilot: Whether the change that is told first, where a finding or a bad forecast calls for one, is tried by
            one more forecast.
        progress: Called as the work goes on.

    Dropout is switched off while a lens looks, except for the forecast, which trains; batch norm stays in its mode. A
    lens that cannot measure this model is listed with its reason among the report's `problems`; so is one that was
    interrupted from the keyboard, and the report holds what was finished.
    """
    chosen, model = choose(tuple(lenses)), require_module(model)
    progress = usual() if progress is silent else progress
    loss_rule(loss)  # a wrong name is an error before any work is done
    with chosen_blocks(blocks):
        for block in blocks:
            require_submodule(model, block)
    if isinstance(data, Iterator):  # it can be gone through once, and several lenses want batches
        data = list(itertools.islice(as_batches(data), KEPT_BATCHES))
    allowed = OPERATIONS if minutes is None else _allowed(minutes, len(chosen))
    looked_at = DEFAULT_SAMPLES if samples is None else samples
    subject = prepared(model, data, looked_at, name or type(model).__name__, loss, allowed)
    with dropout_off(model) as dropping:
        pass  # it is off for each lens alone, since the forecast trains with it
    places = f"{len(dropping)} place{'s' * (len(dropping) > 1)}"
    dropped = (DROPPING.format(places=places, names=listed(dropping)),) * bool(dropping)
    subject = replace(subject, asked=samples is not None, notes=(*subject.notes, *dropped))
    readings: list[Reading] = []
    problems: list[Problem] = []
    count = subject.threads
    for lens in chosen:
        try:
            with chosen_blocks(blocks), threads(count):
                readings.append(_look(lens, subject, Randomness(seed).child(lens.name), progress))
        except errors.SkiplensError as error:
            told = _told_of(loss, error.__cause__) or str(error)
            problems.append(Problem(lens.name, told, not isinstance(error, FOR_OTHER_MODELS)))
        except KeyboardInterrupt:
            problems.append(Problem(lens.name, f"{INTERRUPTED}; what follows it was not measured."))
            break
        except Exception as error:  # what the other lenses saw must not be lost with it
            told = _told_of(loss, error)
            problems.append(Problem(lens.name, told) if told else _unexpected(lens.name, error))
    findings = find(readings, lambda rule, error: problems.append(_unexpected(f"rule {rule}", error)))
    with threads(count):
        readings += _advised(subject, readings, findings, pilot, problems, progress)
    return Report(subject.name, tuple(readings), tuple(problems), findings)


def _advised(
    subject: Subject,
    readings: list[Reading],
    findings: Sequence[Finding],
    pilot: bool,
    problems: list[Problem],
    progress: Progress,
) -> list[Reading]:
    """The change to begin with, where there is a forecast to improve; it is not tried where steps are costly."""
    before = next((reading for reading in readings if isinstance(reading, Forecast)), None)
    if before is None or any(INTERRUPTED in problem.message for problem in problems):
        return []
    affordable = before.provenance.settings.get("cost", 0) >= COST
    try:
        found = best_change(subject, findings, before, tried=pilot and affordable, progress=progress)
    except KeyboardInterrupt:
        problems.append(Problem("best change", f"{INTERRUPTED}."))
        return []
    except Exception as error:  # what the lenses saw must not be lost with it
        problems.append(_unexpected("best change", error))
        return []
    return [] if found is None else [found]


def _told_of(loss: Loss, error: BaseException | None) -> str:
    """What the user's own loss said, where the error comes out of it; else ''."""
    if not isinstance(error, Exception) or not _raised_by(loss, error):
        return ""
    return f"The loss {loss_name(loss)!r} cannot be taken: {type(error).__name__}: {first_line(error)}"


def _unexpected(what: str, error: Exception) -> Problem:
    said, trace = f"{type(error).__name__}: {first_line(error)}", "".join(traceback.format_exception(error))
    known = next((sentence for part, sentence in REFUSALS.items() if part in str(error)), "")
    files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    ours, torchs = Path(__file__).parents[1], Path(torch.__file__).parent
    through_torch = any(torchs in file.parents for file in files)  # a call or a derivative of the model
    if known:
        message = f"{known} (torch said {said})"
    elif through_torch and not {ours, torchs} & set(files[-1].parents):
        message = f"The model itself ended in an error when it was called for this; it said {said}"
    else:
        message = f"{UNEXPECTED} ({said})"
    return Problem(what, message, traceback=trace)


def _save_figures(reading: Reading, folder: Path) -> list[Problem]:
    """Save the figures of a reading; what cannot be drawn is left out and told."""
    try:
        for figure in figures_of(reading):
            save_figure(figure, *(folder / f"{reading.kind}_{figure.name}.{ending}" for ending in ("png", "svg")))
    except errors.SkiplensError:  # the disk is full, or a package is missing
        raise
    except Exception as error:
        return [_unexpected(f"figures of {reading.kind}", error)]
    return []


def _look(lens: Lens, subject: Subject, randomness: Randomness, progress: Progress) -> Reading:
    """The reading; where memory runs out it is taken again in smaller pieces."""

    def told(share: float) -> None:
        progress(f"{lens.name}: out of memory, again with {100 * share:.1f} % of the budget.", 0, 1)

    give_back()
    context, size = copy_context(), sum(parameter.nbytes for parameter in subject.model.parameters())
    if subject.device.type == "cpu":
        context.run(CEILING.set, min(CEILING.get(), ROOM + VECTORS * size))
    still = nullcontext() if isinstance(lens, ForecastLens) else dropout_off(subject.model)  # a training keeps it
    require_room(type(lens), subject.model, LENSES.values(), free_bytes(subject.device))
    with still:
        return context.run(memory_retry, lambda: lens(subject, randomness, stage(lens.name, progress)), told)


def _allowed(minutes: float, lenses: int) -> float:
    """Floating operations of each lens, of which the forecast takes twice as many."""
    if not 0 < minutes < math.inf:
        raise errors.InvalidInputError(f"minutes={minutes}; give a positive number.")
    return minutes * SECONDS * PER_SECOND / (lenses + 1)


def _raised_by(loss: Loss, error: Exception) -> bool:
    """Whether the error comes out of the user's own loss: a function, a module or an object that can be called."""
    candidates = (loss, getattr(loss, "forward", None), type(loss).__call__)
    called = next((function for function in candidates if hasattr(function, "__code__")), None)
    frames = traceback.walk_tb(error.__traceback__)
    return called is not None and any(frame.f_code is called.__code__ for frame, _ in frames)


# What json, torch and the classes of readings say to a file that was not written by `Report.write`.
_NO_REPORT = (AttributeError, KeyError, MemoryError, OSError, RecursionError, RuntimeError, TypeError, ValueError)
