"""The page: Jinja2 fills the template, plotly.js draws, everything is inside the one file."""

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from skiplens.base.optional_imports import optional_import
from skiplens.base.version import VERSION
from skiplens.base.words import in_words
from skiplens.plots.figure import Figure
from skiplens.plots.network_drawing import LaidOut, NetworkDrawing, morph, path_data
from skiplens.plots.plotly_json import in_digits, plotly_json
from skiplens.plots.section import Section
from skiplens.readings import Finding, Reading
from skiplens.report.verification_reading import VerificationReading, verification_section

SCRIPTS = ("elements", "plots", "numbers", "copying", "blocks", "hero", "card", "morph", "actions")
"""Parts of the page's script, in the order in which they build on each other."""


@dataclass(frozen=True)
class Problem:
    """A reading that could not be taken, and why."""

    lens: str
    message: str
    failed: bool = True  # False where the lens is made for other models than this one
    traceback: str = ""  # of an error that nobody foresaw, for who reports it


@dataclass(frozen=True)
class FindingCard:
    """One finding, and what came of trying what it asks for."""

    finding: Finding
    proof: "Proof | None" = None

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """What it was judged by, as label and value."""
        found = self.finding
        numbers = ("measured", in_words(found.number)), ("threshold", in_words(found.threshold))
        where = (("where", ", ".join(found.where)),) * bool(found.where)
        return (*numbers, ("where the threshold comes from", found.source), *where)


@dataclass(frozen=True)
class Opening:
    """The top of the page.

    `severity` is that of the worst finding, '' where nothing is above a note, or 'unknown'; `advice` is a heading, what
    to change, what comes of it, what else was tried, and code.
    """

    verdict: str
    severity: str
    cards: tuple[FindingCard, ...]
    advice: tuple[str, str, str, str, str] = ("", "", "", "", "")

    @property
    def parts(self) -> tuple[str, str]:
        """The verdict in a few words, and the rest of it."""
        few, colon, rest = self.verdict.partition(": ")
        if colon and len(few) < FEW:
            return few, rest[:1].upper() + rest[1:]
        first, stop, rest = self.verdict.partition(". ")
        return first + stop.strip(), rest

    @property
    def card(self) -> tuple[str, str]:
        """What a card says: the verdict in a few words, and the rest of it with what is wrong."""
        wrong = (card.finding.sentence for card in self.cards if card.finding.severity != "note")
        return self.parts[0], f"{self.parts[1]} {next(wrong, '')}".strip()


FEW = 60  # letters of a verdict that is read at a glance


def page(
    title: str,
    opening: Opening,
    sections: Sequence[Section],
    problems: Sequence[Problem],
    readings: Mapping[str, Any],
    drawing: NetworkDrawing | None = None,
) -> str:
    """The whole page as text; every word that comes from a model or a file is escaped."""
    # Cards with a number come first among cards; what is no card, such as the race of a change, keeps its place on top.
    told = {card.proof.section.anchor for card in opening.cards if card.proof}  # beside their findings
    sections = [section for section in sections if section.anchor not in told]
    sections.sort(key=lambda section: (bool(section.question), section.scale is None, not section.figures))
    pictures = [*sections, *(card.proof.section for card in opening.cards if card.proof)]
    blocks = BlockIndex(tuple(name for section in sections for name in section.blocks))
    return template("report.html.j2").render(
        title=title,
        opening=opening,
        blocks=blocks,
        hero=None if drawing is None else LaidOut(drawing),
        laid_out=LaidOut,
        path_data=path_data,
        morph=morph,
        sections=sections,
        problems=problems,
        version=VERSION,
        style=resource("report.css"),
        script=page_script(),
        plotly=plotly_packed() if any(section.figures for section in pictures) else "",
        readings=packed(json.dumps(in_digits(readings, 9), allow_nan=False, ensure_ascii=False)),
        figure_json=lambda figure: json_in_html(plotly_json(figure, digits=6) | {"blocks": blocks.of_figure(figure)}),
    )


def template(name: str) -> Any:
    """A template of the package, which escapes every value it is filled with."""
    jinja2 = optional_import("jinja2", "writing a report")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(resource),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(name)


def resource(name: str) -> str:
    """The text of a file beside the templates."""
    return files("skiplens.report").joinpath("templates", name).read_text(encoding="utf-8")


def page_script(names: Sequence[str] = SCRIPTS, own: str = "") -> str:
    """The script of a page, which keeps its names to itself; `own` comes after the parts that are named."""
    parts = "\n".join([*(resource(f"{name}.js") for name in names), own])
    return f'"use strict";\n(function () {{\n{parts}}})();\n'


@cache
def plotly_packed() -> str:
    """plotly.js for figures in a plane, packed: 0.6 instead of 1.5 megabytes."""
    return _in_letters(plotly_zipped())


def plotly_zipped() -> bytes:
    """The file beside the templates, whose notice says where it comes from."""
    return files("skiplens.report").joinpath("templates", "plotly-cartesian.min.js.gz").read_bytes()


def packed(text: str) -> str:
    """Text as base85 of gzip, in letters that mean nothing in HTML, which the page unpacks."""
    return _in_letters(gzip.compress(text.encode(), mtime=0))


def _in_letters(content: bytes) -> str:
    return base64.b85encode(content).decode().translate(PLAIN)


PLAIN = str.maketrans("&<>", ",.:")


def json_in_html(value: Any) -> str:
    """JSON that may stand inside a script element: no character of it can end the element."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


_WORDS = {"helps": "helps", "hurts": "does not help", "no difference": "does not help", "not raced": "tried"}
"""What a race says, in a word for a badge."""


@dataclass(frozen=True)
class Proof:
    """What came of trying the change, in a word, and everything that is told of it."""

    word: str
    helps: bool
    section: Section


def opening(verdict: str, findings: Sequence[Finding], readings: Sequence[Reading] = ()) -> Opening:
    """The verdict and the findings, most severe first as they come, each with the proof among `readings`."""
    worst = findings[0].severity if findings and findings[0].severity != "note" else ""
    proofs = {
        r.rule: Proof(_WORDS[r.outcome], r.outcome == "helps", verification_section(r))
        for r in readings
        if isinstance(r, VerificationReading)
    }
    return Opening(verdict, worst, tuple(FindingCard(finding, proofs.get(finding.rule)) for finding in findings))


@dataclass(frozen=True)
class BlockIndex:
    """Numbers blocks as they run, from 0; the page's script knows blocks by these numbers only."""

    names: tuple[str, ...]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each block by its name."""
        return {name: number for number, name in enumerate(self.names)}

    def of_names(self, names: Sequence[str]) -> list[int]:
        """The numbers of those `names` that are blocks."""
        return [self.numbers[name] for name in names if name in self.numbers]

    def of_row(self, row: Mapping[str, Any]) -> int | None:
        """The number of the block that a table's row speaks of."""
        return self.numbers.get(str(row.get("block")))

    def of_figure(self, figure: Figure) -> list[tuple[int, float]]:
        """Each block with its place along the figure's x axis."""
        return [(self.numbers[name], place) for name, place in figure.block_places if name in self.numbers]
