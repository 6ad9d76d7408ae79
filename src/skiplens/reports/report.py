"""The report: what was read, what could not be read, and the files that say so."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from skiplens.core.errors import InvalidInputError
from skiplens.core.files import write_atomically
from skiplens.figures import figures_of
from skiplens.figures.matplotlib_file import save_figure
from skiplens.findings import Finding, find, verdict
from skiplens.readings import Reading
from skiplens.reports.findings_section import opening
from skiplens.reports.html import page
from skiplens.reports.json_readings import from_json, to_json
from skiplens.reports.section import Section
from skiplens.reports.sections import section_of

R = TypeVar("R", bound=Reading)

# What json, torch and the classes of readings say to a file that was not written by `Report.write`.
_NO_REPORT = (AttributeError, FileNotFoundError, KeyError, RecursionError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class Problem:
    """A reading that could not be taken, and why."""

    lens: str
    message: str


@dataclass(frozen=True)
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

    @property
    def verdict(self) -> str:
        """One line: that the network is healthy, or its most severe finding; what was measured at all goes before."""
        if not self.readings:
            return "Nothing could be measured."
        return verdict(self.findings)

    def sections(self) -> tuple[Section, ...]:
        """One section a reading, in the order they were taken."""
        return tuple(section_of(reading) for reading in self.readings)

    def save(self, path: Path | str) -> Path:
        """Write the page to `path`: one HTML file that needs nothing else."""
        path = Path(path)
        if path.is_dir():
            raise InvalidInputError(f"{path} is a folder; name the file, e.g. {path / 'report.html'}.")
        content = page(
            self.title,
            opening(self.verdict, self.findings, self.readings),
            self.sections(),
            self.problems,
            self.to_json(),
        ).encode()
        write_atomically(path, lambda file: _write(file, content))
        return path

    def write(self, folder: Path | str) -> Path:
        """Write `report.html`, `readings.json` and `figures/` into `folder`; returns the page's path."""
        folder = Path(folder)
        for reading in self.readings:
            for figure in figures_of(reading):
                for ending in ("png", "svg"):
                    save_figure(figure, folder / "figures" / f"{reading.kind}_{figure.name}.{ending}")
        text = json.dumps(self.to_json(), indent=1, allow_nan=False, ensure_ascii=False).encode()
        write_atomically(folder / "readings.json", lambda file: _write(file, text))
        return self.save(folder / "report.html")

    def to_json(self) -> dict[str, Any]:
        """Everything in the report in words that JSON has."""
        return {
            "title": self.title,
            "verdict": self.verdict,
            "findings": [finding.to_json() for finding in self.findings],
            "readings": [to_json(reading) for reading in self.readings],
            "problems": [{"lens": problem.lens, "message": problem.message} for problem in self.problems],
        }

    @classmethod
    def load(cls, path: Path | str) -> "Report":
        """The report whose `readings.json` is at `path` (the file or its folder); it can be drawn and saved again."""
        path = Path(path)
        path = path / "readings.json" if path.is_dir() else path
        try:
            content = json.loads(path.read_text())
            readings = tuple(from_json(values) for values in content["readings"])
            problems = tuple(Problem(**problem) for problem in content["problems"])
            return cls(content["title"], readings, problems, _findings(content, readings))
        except _NO_REPORT as error:
            raise InvalidInputError(f"{path} does not hold the readings of a report: {error}.") from error


def _findings(content: Mapping[str, Any], readings: tuple[Reading, ...]) -> tuple[Finding, ...]:
    """Those in the file; a file from before there were any is judged now."""
    if "findings" not in content:
        return find(readings)
    return tuple(Finding.from_json(values) for values in content["findings"])


def _write(file: Any, content: bytes) -> None:
    file.write(content)
