"""Look at several models, each drawn several times, and test how they differ."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from skiplens.base.errors import InvalidInputError
from skiplens.base.files import write_content, written_together
from skiplens.base.identity import fingerprint
from skiplens.base.preserve_state import preserve_random_state
from skiplens.base.progress import Progress, silent, stage
from skiplens.base.randomness import Randomness, own_random_state, seed_torch
from skiplens.base.words import in_words, percent
from skiplens.graph.batch import Batch, take
from skiplens.graph.inputs import require_module
from skiplens.graph.loss import Loss, loss_rule
from skiplens.improvement.drawing import drawing_of
from skiplens.plots.matplotlib_file import save_figure
from skiplens.plots.section import Section
from skiplens.readings.reading import Reading
from skiplens.report.compared import LEVEL, ComparedModel, Measured, all_numbers, measure, overlays
from skiplens.report.inspection import INTERRUPTED, Report, inspect
from skiplens.report.lenses import LENSES, choose, guarded_section, has_section
from skiplens.report.page import Opening, Problem, page
from skiplens.signal.structure import StructureReading
from skiplens.trainability.reading import Forecast

Builder = Callable[[int], nn.Module]  # from a seed to a model with weights of that seed

ONE_MODEL = (
    "It was handed over as a model, so it exists once: what a new draw of its weights would change is not known."
)

SAME_WEIGHTS = (
    "Its builder gives the same weights for every seed (a checkpoint, or a fixed seed inside), so it exists once: what "
    "a new draw of its weights would change is not known."
)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several models, several draws of each.

    Attributes:
        contenders: The models; the first is the one that the others are tested against.
        notes: What was sampled, and what was left out.

    Example:
        comparison = sl.compare({"plain": build_plain, "scaled": build_scaled}, data)
        comparison.save("comparison.html")
    """

    contenders: tuple[ComparedModel, ...]
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """What the models are called."""
        return tuple(contender.name for contender in self.contenders)

    @property
    def title(self) -> str:
        """All names."""
        return " against ".join(self.names)

    @cached_property
    def numbers(self) -> tuple[Measured, ...]:
        """Every key number with its tests."""
        return measure(self.contenders, self._kinds)

    @property
    def verdict(self) -> str:
        """One line: in how many numbers the models differ by more than draws of one model do."""
        if not any(number.tested and not number.exact for number in self.numbers):
            return f"{_farthest(self.numbers)}Nothing could be tested: each model exists once, so chance is not known."
        return _told(self.numbers, self.names)

    def sections(self) -> tuple[Section, ...]:
        """All numbers in one chart and how they were tested, the models, then one section a lens; facts come last."""
        chart = all_numbers(self.numbers, self.names)
        title, figures = "What differs", (chart,) if chart else ()
        tested = (("how it was tested", METHOD),)
        effects = Section("effects", title, "", notes=self.notes, figures=figures, provenance=tested)
        models = (_of_model(contender, index) for index, contender in enumerate(self.contenders))
        facts_last = sorted(self._kinds, key=lambda kind: kind is StructureReading)
        return (effects, *models, *map(self._of_kind, facts_last))

    def save(self, path: Path | str) -> Path:
        """Write the page to `path`: one HTML file that needs nothing else."""
        opening = Opening(self.verdict, "unknown", ())  # nothing is called good or bad
        content = page(self.title, opening, self.sections(), self.problems, self.to_json())
        write_content(Path(path), content)
        return Path(path)

    def write(self, folder: Path | str) -> Path:
        """Write `comparison.html`, `comparison.json` and `figures/` into `folder`; returns the page's path."""
        with written_together(Path(folder)) as beside:
            for kind in self._kinds:
                for figure in overlays(self.contenders, kind):
                    stem = f"{kind.kind}_{figure.name}"
                    save_figure(figure, *(beside / "figures" / f"{stem}.{ending}" for ending in ("png", "svg")))
            text = json.dumps(self.to_json(), indent=1, allow_nan=False, ensure_ascii=False)
            write_content(beside / "comparison.json", text)
            self.save(beside / "comparison.html")
        return Path(folder) / "comparison.html"

    def to_json(self) -> dict[str, Any]:
        """The numbers and their tests in words that JSON has."""
        return {
            "verdict": self.verdict,
            "models": [
                {"name": c.name, "draws": len(c.reports), "note": c.note, "verdicts": [r.verdict for r in c.reports]}
                for c in self.contenders
            ],
            "numbers": [number.to_json(self.names) for number in self.numbers],
            "problems": [asdict(problem) for problem in self.problems],
            "notes": [*self.notes, METHOD],
        }

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What could not be measured, each once."""
        found = [
            replace(problem, lens=f"{contender.name}, {problem.lens}")
            for contender in self.contenders
            for report in contender.reports
            for problem in report.problems
        ]
        found += [
            Problem(f"{contender.name}, {kind.kind}", f"Its numbers could not be compared: {why}")
            for contender in self.contenders
            for kind in self._kinds
            for why in contender.not_compared(kind)
        ]
        return tuple(dict.fromkeys(found))

    @property
    def _kinds(self) -> tuple[type[Reading], ...]:
        """Those of all reports, in the order in which the first ones have them."""
        readings = (reading for one in self.contenders for report in one.reports for reading in report.readings)
        return tuple(dict.fromkeys(type(reading) for reading in readings if has_section(reading)))

    def _of_kind(self, kind: type[Reading]) -> Section:
        own = [number for number in self.numbers if number.kind == kind.kind]
        named = guarded_section(next(reading for contender in self.contenders for reading in contender.readings(kind)))
        return Section(
            anchor=kind.kind,
            title=named.title,
            sentence=_counted(own, self.names),
            question=named.question,
            rows=tuple(number.row(self.names) for number in own),
            figures=overlays(self.contenders, kind),
            provenance=named.provenance,
        )


@preserve_random_state()
def compare(  # noqa: PLR0913 - the models, their data, and keywords of which each has a default
    models: Mapping[str, nn.Module | Builder],
    data: Any,
    *,
    lenses: Sequence[str] = (),
    loss: Loss = None,
    draws: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Comparison:
    """The models side by side, each tested against the first: do they differ by more than new weights of one do?

    An interruption from the keyboard leaves what was finished.

    Args:
        models: For each name a function from a seed to a model, which is drawn several times, or a model, which exists
            once.
        data: `(inputs, targets)` or an iterable of such batches; or a mapping from the names to those, for models that
            want different inputs.
        lenses: Names of lenses; by default all, but the costly ones for models of more than a million parameters.
        loss: As for `inspect`.
        draws: How often each model is drawn; by default 5 times, 3 times for such large models.
        seed: The first of the seeds.
        progress: Called as the work goes on.
    """
    if len(models) < 2:
        raise InvalidInputError(f"A comparison needs at least 2 models, got {len(models)}: {', '.join(models)}.")
    loss_rule(loss)  # a wrong name is an error before any work is done
    drawn = _Draws(models, seed)
    largest = max(sum(p.numel() for p in model.parameters()) for model in drawn.first.values())
    chosen = effort(largest, lenses, draws)
    batches = _batches(models, data, chosen.samples)
    reports: dict[str, list[Report]] = {name: [] for name in models}
    # Draw by draw, each with all models, so that an interruption leaves models that can be compared.
    pairs = [(draw, name) for draw in range(chosen.draws) for name in models]
    within: Progress = lambda *told: None if told[0].endswith(".") else progress(*told)  # noqa: E731 - no sentences
    try:
        for number, (draw, name) in enumerate(pairs):
            model = drawn(name, draw)
            if model is None:
                continue
            which = f"{name} ({number + 1} of {len(pairs)})"
            progress(which, number, len(pairs))
            asked: dict[str, Any] = {"lenses": chosen.lenses, "loss": loss, "name": name, "seed": seed + draw}
            reports[name].append(inspect(model, batches[name], pilot=False, progress=stage(which, within), **asked))
            if any(INTERRUPTED in problem.message for problem in reports[name][-1].problems):
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        if sum(bool(taken) for taken in reports.values()) < 2:
            raise
    finished = [ComparedModel(name, tuple(taken), drawn.notes[name]) for name, taken in reports.items() if taken]
    return Comparison(tuple(finished), chosen.notes)


@dataclass(frozen=True)
class ComparisonEffort:
    """Draws of each model, samples, lenses, and what a person should know about them."""

    draws: int
    samples: int
    lenses: tuple[str, ...]
    notes: tuple[str, ...]


class _Draws:
    """The draws of each model; `notes` says why there is only one where there is only one."""

    def __init__(self, models: Mapping[str, nn.Module | Builder], seed: int) -> None:
        self.models, self.seed = models, seed
        self.notes = {name: ONE_MODEL if isinstance(model, nn.Module) else "" for name, model in models.items()}
        self.first = {
            name: require_module(model if isinstance(model, nn.Module) or not callable(model) else model(seed))
            for name, model in models.items()
        }
        self._prints = {name: fingerprint(model.state_dict().items()) for name, model in self.first.items()}

    def __call__(self, name: str, draw: int) -> nn.Module | None:
        """The draw of a model; None where it exists only once and was seen."""
        model = self.models[name]
        if draw == 0:
            return self.first[name]
        if self.notes[name] or isinstance(model, nn.Module):
            return None
        fresh = require_module(model(self.seed + draw))
        if fingerprint(fresh.state_dict().items()) == self._prints[name]:
            self.notes[name] = SAME_WEIGHTS
            return None
        return fresh


def _batches(models: Mapping[str, Any], data: Any, samples: int) -> dict[str, Batch]:
    if not isinstance(data, Mapping) or not data.keys() & models.keys():  # one batch may be a mapping too
        shared = take(data, samples)
        return dict.fromkeys(models, shared)
    missing = [name for name in models if name not in data]
    if missing:
        raise InvalidInputError(f"data has no entry for {', '.join(missing)}; wanted one for each model, by its name.")
    return {name: take(data[name], samples) for name in models}


METHOD = (
    "Each number is the mean ± standard deviation over draws of the weights. Each model is tested against the first: "
    "Welch's t-test, or Student's prediction interval where one of the two has a single draw; factors, eigenvalues and "
    f"condition numbers on a logarithmic scale. A verdict holds at {percent(LEVEL)} after Holm's correction for all "
    "numbers of this page, and p-values are those after it."
)


def _of_model(contender: ComparedModel, index: int) -> Section:
    first, draws = contender.reports[0], len(contender.reports)
    severe = [sum(f.severity != "note" for f in report.findings) for report in contender.reports]
    return Section(
        anchor=f"model-{index + 1}",
        title=contender.name,
        sentence=first.verdict,
        facts=(
            ("draws of the weights", str(draws)),
            ("findings above a note", ", ".join(map(str, severe)) + (" (draw by draw)" if draws > 1 else "")),
            *((section.title, section.sentence) for section in first.sections()),
        ),
        notes=(contender.note,) if contender.note else (),
        provenance=guarded_section(first.readings[0]).provenance if first.readings else (),
        drawing=drawing_of(first.readings, first.findings),
    )


SHOWN = 3  # effects in the verdict


def _told(numbers: Sequence[Measured], names: Sequence[str]) -> str:
    """The clearest effects in numbers, then how many there are; what every draw has alike was not measured."""
    measured = [number for number in numbers if not number.exact]
    found = [
        (number.kind != Forecast.kind, number.adjusted[index - 1], number, index)
        for number in measured
        for index in range(1, len(names))
        if number.verdict(index) in ("higher", "lower")
    ]
    tested = sorted((row for row in found if not math.isnan(row[1])), key=lambda row: row[:2])
    alike = [row for row in found if math.isnan(row[1])]
    total = sum(any(not math.isnan(p) for p in number.p_values) for number in measured)
    if not tested:
        counted = f" In every draw: {_effects(alike, names)}." if alike else ""
        return f"No number differs by more than seed-to-seed noise, of {total} tested.{counted}"
    effects, differing = _effects(tested, names), len({number.label for *_, number, _ in tested})
    differ = f"{differing} of {total} numbers differ{'s' * (differing == 1)}"
    return f"{effects[0].upper()}{effects[1:]}. {differ} by more than seed-to-seed noise."


def _effects(rows: Sequence[tuple[bool, float, Measured, int]], names: Sequence[str]) -> str:
    """The first of them, each from the first model to another."""
    return ", ".join(
        f"{number.label} {_mean(number, 0)} → {_mean(number, index)}{f' ({names[index]})' * (len(names) > 2)}"
        for *_, number, index in rows[:SHOWN]
    )


def _farthest(numbers: Sequence[Measured]) -> str:
    """The numbers that are the most times larger or smaller than the first model's, where no test can be made."""
    apart = []
    for number in numbers:
        means = [float(values.mean()) for values in number.values if len(values)]
        if not number.exact and len(means) == len(number.values) and min(means) > 0 and math.isfinite(max(means)):
            ratio, index = max((abs(math.log(mean / means[0])), index) for index, mean in enumerate(means))
            apart.append((-ratio, f"{number.label} {in_words(means[0])} → {in_words(means[index])}"))
    shown = ", ".join(words for ratio, words in sorted(apart)[:SHOWN] if ratio)
    return f"{shown[0].upper()}{shown[1:]}. " if shown else ""


def _mean(number: Measured, index: int) -> str:
    return in_words(float(number.values[index].mean()))


def _counted(numbers: Sequence[Measured], names: Sequence[str]) -> str:
    differing = [number.label for number in numbers if not {"higher", "lower"}.isdisjoint(number.verdicts)]
    total = sum(number.tested for number in numbers)
    shown = ", ".join(differing[:4]) + (", …" if len(differing) > 4 else "")
    certain = total and all(math.isnan(p) for number in numbers for p in number.p_values)
    if certain or (numbers and all(number.exact for number in numbers)):  # alike in every draw, or counted
        return f"They differ in: {shown}." if differing else "They do not differ in what can be counted."
    if not total:
        have = [name for place, name in enumerate(names) if any(len(number.values[place]) for number in numbers)]
        return f"Only {have[0]} has numbers here." if len(have) == 1 else "There is no number to compare."
    if not differing:
        return f"No number differs by more than seed-to-seed noise, of {total} tested."
    differ = f"{len(differing)} of {total} numbers differ{'s' * (len(differing) == 1)}"
    return f"{differ} by more than seed-to-seed noise: {shown}."


def drawn_by_seed(build: Callable[[], nn.Module]) -> Callable[[int], nn.Module]:
    """The function from a seed to what `build` returns when torch's generators start there; they are put back."""

    def drawn(seed: int) -> nn.Module:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        with own_random_state(device):
            seed_torch(Randomness(seed).child("weights"), device)
            return build()

    return drawn


LARGE = 1_000_000  # parameters from which on a model counts as large

# Lenses whose cost grows with parameters times samples; large models are compared without them unless asked.
COSTLY = ("curvature", "tangent")


def effort(parameters: int, lenses: Sequence[str], draws: int | None) -> ComparisonEffort:
    """The effort for models of which the largest has so many parameters; what is not asked for is chosen here."""
    choose(tuple(lenses))  # a wrong name is told before any work is done
    if draws is not None and draws < 1:
        raise InvalidInputError(f"A comparison of {draws} draws was asked for; wanted at least 1.")
    large = parameters > LARGE
    chosen = tuple(lenses) or tuple(name for name in LENSES if not (large and name in COSTLY))
    count, samples = draws or (3 if large else 5), 8 if large else 16
    told = [f"Each model was drawn up to {count} times and looked at with {samples} samples."]
    left_out = [name for name in COSTLY if name not in chosen]
    if left_out and not lenses:
        told.append(
            f"Left out, since a model has {parameters:,} parameters: {' and '.join(left_out)}. Ask for them by name."
        )
    return ComparisonEffort(count, samples, chosen, tuple(told))
