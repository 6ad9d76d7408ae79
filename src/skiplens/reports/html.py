"""The page: Jinja2 fills the template, plotly.js draws, everything is inside the one file."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from skiplens.core.doors import open_door
from skiplens.core.version import VERSION
from skiplens.figures.plotly_json import plotly_json
from skiplens.reports.findings_section import Opening
from skiplens.reports.section import Section

if TYPE_CHECKING:
    from skiplens.reports.report import Problem


def page(
    title: str,
    opening: Opening,
    sections: Sequence[Section],
    problems: Sequence["Problem"],
    readings: Mapping[str, Any],
) -> str:
    """The whole page as text; every word that comes from a model or a file is escaped."""
    return template("report.html.j2").render(
        title=title,
        opening=opening,
        sections=sections,
        problems=problems,
        version=VERSION,
        style=resource("report.css"),
        script=resource("report.js"),
        plotly=plotly_source() if any(section.figures for section in sections) else "",
        readings=json_in_html(readings),
        figure_json=lambda figure: json_in_html(plotly_json(figure)),
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


def plotly_source() -> str:
    """The whole of plotly.js."""
    return open_door("plotly.offline", "the plots of a report", "plotly").get_plotlyjs()


def json_in_html(value: Any) -> str:
    """JSON that may stand inside a script element: no character of it can end the element."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
