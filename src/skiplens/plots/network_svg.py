"""The drawing of a network as a picture that stands alone: on a page of the documentation, in a notebook."""

from html import escape
from importlib.resources import files

from skiplens.plots.network_drawing import HEIGHT, Curve, NetworkDrawing, layout, path_data


def network_svg(drawing: NetworkDrawing, label: str) -> str:
    """The whole file as text; `label` is what a screen reader says of it."""
    style = files("skiplens.plots").joinpath("network.css").read_text(encoding="utf-8")
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
