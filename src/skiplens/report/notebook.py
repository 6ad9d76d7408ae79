"""A report without scripts, as a notebook shows it, and its drawing as a picture that stands alone."""

from base64 import b64encode
from collections.abc import Sequence
from html import escape

from skiplens.plots.network_drawing import HEIGHT, LaidOut, NetworkDrawing, path_data
from skiplens.readings.finding import Finding
from skiplens.report.page import resource, template


def inline(title: str, words: Sequence[str], drawing: NetworkDrawing | None, findings: Sequence[Finding]) -> str:
    """HTML that stands in a cell; every word in it is text."""
    parts = [f"<h3>{escape(title)}</h3>", *(f"<p>{escape(line)}</p>" for line in words if line)]
    if drawing is not None:
        picture = b64encode(network_svg(drawing, title).encode()).decode()
        shape = f"width:100%;max-width:{drawing.width:g}px;aspect-ratio:{drawing.width:g}/{HEIGHT:g}"
        parts.append(f'<img alt="{escape(title)}" style="{shape}" src="data:image/svg+xml;base64,{picture}">')
    items = [f"<li><b>{f.severity}</b>: {escape(f'{f.sentence} {f.change}')}</li>" for f in findings]
    return "\n".join([*parts, *(["<ul>", *items, "</ul>"] if items else [])])


def network_svg(drawing: NetworkDrawing, label: str) -> str:
    """A picture that fills what it stands in, in the light or the dark look; `label` is what a screen reader says."""
    asked = {"drawing": drawing, "laid_out": LaidOut(drawing), "label": label, "style": resource("network.css")}
    return str(template("network.svg.j2").render(path_data=path_data, **asked))
