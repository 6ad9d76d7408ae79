"""A report as a notebook shows it: name, verdict, drawing and findings, without scripts."""

from base64 import b64encode
from collections.abc import Sequence
from html import escape

from skiplens.plots.network_drawing import NetworkDrawing
from skiplens.plots.network_svg import network_svg
from skiplens.readings.finding import Finding


def inline(title: str, words: Sequence[str], drawing: NetworkDrawing | None, findings: Sequence[Finding]) -> str:
    """HTML that stands in a cell; every word in it is text."""
    parts = [f"<h3>{escape(title)}</h3>", *(f"<p>{escape(line)}</p>" for line in words if line)]
    if drawing is not None:
        picture = b64encode(network_svg(drawing, title).encode()).decode()
        parts.append(f'<img alt="{escape(title)}" style="max-width:100%" src="data:image/svg+xml;base64,{picture}">')
    items = [f"<li><b>{f.severity}</b>: {escape(f'{f.sentence} {f.change}')}</li>" for f in findings]
    return "\n".join([*parts, *(["<ul>", *items, "</ul>"] if items else [])])
