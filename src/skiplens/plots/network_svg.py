"""The drawing of a network as a picture that stands alone: on a page of the documentation, in a notebook."""

from html import escape

from skiplens.plots.network_drawing import HEIGHT, Curve, NetworkDrawing, layout, path_data

LIGHT = (
    "--bg: #f6f8fa; --ink: #1b1f24; --soft: #59636e; --blue: #0068a3; --go: #00714f; --back: #b24a00; --red: #b3261e"
)
DARK = "--bg: #161b22; --ink: #e6edf3; --soft: #9aa5b1; --blue: #56b4e9; --go: #3fb98f; --back: #f0a440; --red: #ff8a80"
RULES = """text { fill: var(--soft); font: 12px system-ui, sans-serif } path { fill: none; stroke: var(--ink) }
.caption { fill: var(--ink); font-size: 15px; font-weight: 650 } .trunk { stroke: var(--soft) }
.ribbon { stroke: var(--blue); stroke-opacity: .55 } path.bar { fill: var(--blue); stroke: none }
path.signal { stroke: var(--go) } text.signal { fill: var(--go); font-weight: 650 }
path.gradient { stroke: var(--back) } text.gradient { fill: var(--back); font-weight: 650 }
path.mark { fill: var(--bg) } path.alarm { fill: var(--red); stroke: none }
text.alarm { fill: var(--bg); font-weight: 700 }"""


def network_svg(drawing: NetworkDrawing, label: str) -> str:
    """The whole file as text; `label` is what a screen reader says of it."""
    style = f":root {{ {LIGHT} }} @media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}\n{RULES}"
    width, words = f"{drawing.width:g}", escape(label)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT:g}" width="{width}" role="img">',
        f'<title>{words}</title><style>{style}</style><rect width="100%" height="100%" rx="8" fill="var(--bg)"/>',
    ]
    for shape in layout(drawing):
        if isinstance(shape, Curve):
            parts.append(f'<path class="{shape.role}" d="{path_data(shape)}" stroke-width="{shape.thickness:.1f}"/>')
        else:
            place = f'x="{shape.at[0]:.1f}" y="{shape.at[1]:.1f}" text-anchor="{shape.anchor}"'
            parts.append(f'<text class="{shape.role}" {place}>{escape(shape.text)}</text>')
    return "\n".join([*parts, "</svg>\n"])
