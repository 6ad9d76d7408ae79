"""The comparison: models, their numbers and the page that shows them side by side."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from skiplens.core.files import write_content
from skiplens.figures.matplotlib_file import save_figure
from skiplens.readings import Reading
from skiplens.readings.reading import KINDS
from skiplens.reports.comparison.contender import Contender
from skiplens.reports.comparison.curves import overlays
from skiplens.reports.comparison.difference import LEVEL
from skiplens.reports.comparison.measured import Measured, measure
from skiplens.reports.findings_section import neutral_opening
from skiplens.reports.html import page
from skiplens.reports.report import Problem
from skiplens.reports.section import Section
from skiplens.reports.sections import section_of

MOST_NAMED = 4
METHOD = (
    "Each number is the mean ± standard deviation over draws of the weights. Each model is tested against the first: "
    "Welch's t-test, or Student's prediction interval where one of the two has a single draw; factors, eigenvalues and "
    f"condition numbers on a logarithmic scale. A verdict holds at {LEVEL:.0%} after Holm's correction for all numbers "
    "of this page; p-values are shown before it."
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

    contenders: tuple[Contender, ...]
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
            return "Nothing could be tested: each model exists only once, so what chance does is not known."
        return _counted(self.numbers)

    def sections(self) -> tuple[Section, ...]:
        """One section a model, how they were compared, then one section a lens."""
        models = (_of_model(contender, index) for index, contender in enumerate(self.contenders))
        how = Section("method", "How they were compared", METHOD, notes=self.notes)
        return (*models, how, *map(self._of_kind, self._kinds))

    def save(self, path: Path | str) -> Path:
        """Write the page to `path`: one HTML file that needs nothing else."""
        path = Path(path)
        content = page(self.title, neutral_opening(self.verdict), self.sections(), self.problems, self.to_json())
        write_content(path, content)
        return path

    def write(self, folder: Path | str) -> Path:
        """Write `comparison.html`, `comparison.json` and `figures/` into `folder`; returns the page's path."""
        folder = Path(folder)
        for kind in self._kinds:
            for figure in overlays(self.contenders, kind):
                for ending in ("png", "svg"):
                    save_figure(figure, folder / "figures" / f"{kind.kind}_{figure.name}.{ending}")
        text = json.dumps(self.to_json(), indent=1, allow_nan=False, ensure_ascii=False)
        write_content(folder / "comparison.json", text)
        return self.save(folder / "comparison.html")

    def to_json(self) -> dict[str, Any]:
        """The numbers and their tests in words that JSON has."""
        models = [
            {"name": c.name, "draws": len(c.reports), "note": c.note, "verdicts": [r.verdict for r in c.reports]}
            for c in self.contenders
        ]
        numbers = [number.to_json(self.names) for number in self.numbers]
        problems = [{"lens": problem.lens, "message": problem.message} for problem in self.problems]
        notes = [*self.notes, METHOD]
        return {"verdict": self.verdict, "models": models, "numbers": numbers, "problems": problems, "notes": notes}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What could not be measured, each once."""
        found = [
            Problem(f"{contender.name}, {problem.lens}", problem.message)
            for contender in self.contenders
            for report in contender.reports
            for problem in report.problems
        ]
        return tuple(dict.fromkeys(found))

    @property
    def _kinds(self) -> tuple[type[Reading], ...]:
        seen = {reading.kind for one in self.contenders for report in one.reports for reading in report.readings}
        return tuple(kind for name, kind in sorted(KINDS.items(), key=self._place) if name in seen)

    def _place(self, item: tuple[str, type[Reading]]) -> int:
        """The order in which the first report has them."""
        taken = [reading.kind for one in self.contenders for report in one.reports for reading in report.readings]
        return taken.index(item[0]) if item[0] in taken else len(taken)

    def _of_kind(self, kind: type[Reading]) -> Section:
        readings = [reading for contender in self.contenders for reading in contender.readings(kind)]
        own = [number for number in self.numbers if number.kind == kind.kind]
        named = section_of(readings[0])
        return Section(
            anchor=kind.kind,
            title=named.title,
            sentence=_counted(own),
            rows=tuple(number.row(self.names) for number in own),
            figures=overlays(self.contenders, kind),
            provenance=named.provenance,
        )


def _of_model(contender: Contender, index: int) -> Section:
    first = contender.reports[0]
    told: Mapping[str, str] = {section.title: section.sentence for section in first.sections()}
    draws = len(contender.reports)
    severe = [sum(f.severity != "note" for f in report.findings) for report in contender.reports]
    return Section(
        anchor=f"model-{index + 1}",
        title=contender.name,
        sentence=first.verdict,
        facts=(
            ("draws of the weights", str(draws)),
            ("findings above a note", ", ".join(map(str, severe)) + (" (draw by draw)" if draws > 1 else "")),
            *told.items(),
        ),
        notes=(contender.note,) if contender.note else (),
        provenance=section_of(first.readings[0]).provenance if first.readings else (),
    )


def _counted(numbers: Sequence[Measured]) -> str:
    differing = [number.label for number in numbers if number.differs]
    total = sum(number.tested for number in numbers)
    if not total:
        return "No number could be tested." if numbers else "There is no number to compare."
    if not differing:
        return f"None of {total} numbers differs by more than seed-to-seed noise."
    shown = ", ".join(differing[:MOST_NAMED]) + (", …" if len(differing) > MOST_NAMED else "")
    return f"{len(differing)} of {total} numbers differ by more than seed-to-seed noise: {shown}."
