"""The gallery: figures, verdicts and deviations of papers on one self-contained page."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skiplens.base.version import VERSION
from skiplens.base.words import in_words, plus_minus
from skiplens.plots.figure import Figure
from skiplens.plots.plotly_json import plotly_json
from skiplens.report.page import json_in_html, page_script, plotly_packed, resource, template


@dataclass(frozen=True)
class GalleryItem:
    """A figure, table or theorem of a paper."""

    name: str
    title: str
    verdicts: tuple[Mapping[str, Any], ...]  # entries as in verdicts.json
    figures: tuple[Figure, ...]
    files: tuple[tuple[str, str], ...]  # names and relative places of its raw numbers
    notes: tuple[str, ...]  # deviations from the paper
    problems: tuple[str, ...]  # why something is missing


@dataclass(frozen=True)
class GalleryPaper:
    """A paper and its items; `errata` says in words where its mistakes are listed."""

    name: str
    title: str
    byline: str
    question: str
    items: tuple[GalleryItem, ...]
    errata: str = ""


def gallery_page(papers: Sequence[GalleryPaper], facts: Sequence[tuple[str, str]]) -> str:
    """The whole page as text; `facts` say where it comes from, as label and value."""
    verdicts = [verdict for paper in papers for item in paper.items for verdict in item.verdicts]
    found = [shown_word(verdict["verdict"], verdict["ours"]) for verdict in verdicts]
    words = ("reproduced", "corrected", "opposite", "differs", "undecided", "not run")
    return template("gallery.html.j2").render(
        papers=papers,
        facts=facts,
        counts=[(word, found.count(word)) for word in words if word in found],
        changed=[verdict for verdict in verdicts if verdict["changed"]],
        version=VERSION,
        style=resource("report.css") + resource("gallery.css"),
        script=page_script(),
        plotly=plotly_packed() if any(item.figures for paper in papers for item in paper.items) else "",
        verdicts=json_in_html(verdicts),
        figure_json=lambda figure: json_in_html(plotly_json(figure, digits=6)),
        number=number,
        plus_minus=plus_minus,
        minus=lambda text: re.sub(r"(?<![\w.)\]])-(?=\d)", "−", text),  # words of studies, which are written as code is
        shown_word=shown_word,
    )


def shown_word(verdict: str, ours: float | None) -> str:
    """The verdict for a reader: what ran and was not decided has a number of ours, what did not run has none."""
    if verdict != "not attempted":
        return verdict
    return "not run" if ours is None else "undecided"


def number(value: float | None) -> str:
    """A number as a person writes it; nothing for None."""
    return "" if value is None else in_words(value, 4)
