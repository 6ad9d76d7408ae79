"""The page: Jinja2 fills the template, plotly.js draws, everything is inside the one file."""

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from skiplens.core.doors import open_door
from skiplens.core.version import VERSION
from skiplens.figures.plotly_json import plotly_json
from skiplens.reports.block_index import BlockIndex
from skiplens.reports.findings_section import Opening, severity_counts
from skiplens.reports.section import Section

if TYPE_CHECKING:
    from skiplens.reports.report import Problem

SCRIPTS = ("elements", "plots", "numbers", "copying", "blocks", "actions")
"""Parts of the page's script, in the order in which they build on each other."""


def page(
    title: str,
    opening: Opening,
    sections: Sequence[Section],
    problems: Sequence["Problem"],
    readings: Mapping[str, Any],
) -> str:
    """The whole page as text; every word that comes from a model or a file is escaped."""
    blocks = BlockIndex(tuple(cell for section in sections for cell in section.cells))
    return template("report.html.j2").render(
        title=title,
        opening=opening,
        counts=severity_counts(opening.cards),
        blocks=blocks,
        sections=sections,
        problems=problems,
        version=VERSION,
        style=resource("report.css"),
        script=page_script(),
        plotly=plotly_packed() if any(section.figures for section in sections) else "",
        readings=json_in_html(readings),
        figure_json=lambda figure: json_in_html(plotly_json(figure) | {"blocks": blocks.of_figure(figure)}),
    )


def template(name: str) -> Any:
    """A template of the package, which escapes every value it is filled with."""
    jinja2 = open_door("jinja2", "writing a report")
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
    return files("skiplens.reports").joinpath("templates", name).read_text(encoding="utf-8")


def page_script(names: Sequence[str] = SCRIPTS, own: str = "") -> str:
    """The script of a page, which keeps its names to itself; `own` comes after the parts that are named."""
    parts = "\n".join([*(resource(f"{name}.js") for name in names), own])
    return f'"use strict";\n(function () {{\n{parts}}})();\n'


@cache
def plotly_packed() -> str:
    """The whole of plotly.js as base64 of gzip, which the page unpacks: 2.0 instead of 4.8 megabytes."""
    source = open_door("plotly.offline", "the plots of a report", "plotly").get_plotlyjs()
    return base64.b64encode(gzip.compress(source.encode(), mtime=0)).decode()


def json_in_html(value: Any) -> str:
    """JSON that may stand inside a script element: no character of it can end the element."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
