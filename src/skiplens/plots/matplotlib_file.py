"""A figure as a PNG or SVG file; the one door to Matplotlib."""

import io
import math
import textwrap
from functools import partial, singledispatch
from pathlib import Path
from typing import Any

import numpy as np

from skiplens.base.files import write_atomically
from skiplens.base.optional_imports import optional_import
from skiplens.base.words import in_words
from skiplens.plots import Band, Bars, Contour, Figure, Heat, Line, Points, Reference, Surface
from skiplens.plots.figure import FAINT, INK, LEVELS, MOST_LABELLED_BARS, REFERENCE_COLOUR, Mark, colour
from skiplens.plots.network_drawing import HEIGHT, NetworkDrawing, Words, layout

SIZE_IN_INCHES, DOTS_PER_INCH = (6.4, 4.0), 150
MISSING_COLOUR = "#BFBFBF"  # behind contours: where there is nothing to draw, this is seen
SHORT_AXIS = 200.0  # largest over smallest value of a logarithmic axis whose ticks need spacing
WIDTH_OF_BARS = 0.8  # the share of a category that its bars fill together


def save_figure(figure: Figure, *paths: Path | str) -> None:
    """Draw `figure` once, into each of `paths`; their endings (.png, .svg, .pdf) say how."""
    _save(_drawn(figure), *paths)


def _save(canvas: Any, *paths: Path | str) -> None:
    for path in map(Path, paths):
        write_atomically(path, partial(canvas.savefig, format=path.suffix[1:], dpi=DOTS_PER_INCH))


def figure_bytes(figure: Figure, ending: str) -> bytes:
    """The same file as its content, for those who do not want it on disk."""
    content = io.BytesIO()
    _drawn(figure).savefig(content, format=ending, dpi=DOTS_PER_INCH)
    return content.getvalue()


CARD_IN_INCHES, CARD_DOTS = (12.0, 6.3), 100
_SHADES = {
    "trunk": "#a4a9af", "ribbon": "#408eba", "signal": "#00714f", "gradient": "#b24a00", "mark": "#1b1f24",
    "bar": "#0068a3", "alarm": "#b3261e", "caption": "#1b1f24", "number": "#59636e", "note": "#59636e",
    "axis": "#59636e", "signal-area": "#00714f", "gradient-area": "#b24a00",
}  # fmt: skip


def save_drawing(drawing: NetworkDrawing, *paths: Path | str) -> None:
    """Draw a network once, into each of `paths`; their endings say how."""
    matplotlib = optional_import("matplotlib.figure", "drawing a network")
    canvas = matplotlib.Figure(figsize=(drawing.width / 100, HEIGHT / 100))
    _draw_network(drawing, canvas.add_axes((0, 0, 1, 1)))
    _save(canvas, *paths)


def save_card(drawing: NetworkDrawing, title: str, verdict: tuple[str, str], path: Path | str) -> None:
    """Draw a network with its name and its verdict, in a few words and in more, as a picture of 1200 × 630 pixels."""
    path, matplotlib = Path(path), optional_import("matplotlib.figure", "drawing a card")
    canvas = matplotlib.Figure(figsize=CARD_IN_INCHES, dpi=CARD_DOTS)
    canvas.text(0.05, 0.89, _plain(textwrap.shorten(title, 80)), fontsize=16, color=_SHADES["note"])
    headline = (30, 0.86, 45, 1) if len(verdict[0]) <= 45 else (20, 0.86, 70, 2)
    for text, (size, top, width, most) in zip(verdict, (headline, (15, 0.75, 92, 3)), strict=True):
        lines = _plain("\n".join(textwrap.wrap(text, width, max_lines=most, placeholder=" …")))
        weight = "bold" if most < 3 else "normal"
        canvas.text(0.05, top, lines, fontsize=size, fontweight=weight, va="top", color=_SHADES["caption"])
    for words in canvas.texts:  # letters are not of one width, and there are 1080 pixels between the margins
        words.set_fontsize(words.get_fontsize() * min(1.0, 1080 / max(1.0, words.get_window_extent().width)))
    height = 0.9 * CARD_IN_INCHES[0] / CARD_IN_INCHES[1] * HEIGHT / drawing.width
    _draw_network(drawing, canvas.add_axes((0.05, 0.08, 0.9, min(0.46, height))))
    canvas.text(0.95, 0.03, "made with skiplens inspect", fontsize=11, ha="right", color=_SHADES["note"])
    write_atomically(path, lambda file: canvas.savefig(file, format=path.suffix[1:], dpi=CARD_DOTS))


def _draw_network(drawing: NetworkDrawing, axes: Any) -> None:
    patches, paths = (optional_import(f"matplotlib.{part}", "drawing a network") for part in ("patches", "path"))
    axes.set(xlim=(0, drawing.width), ylim=(HEIGHT, 0))
    axes.set_axis_off()
    shown = axes.bbox.width / drawing.width * 72 / axes.figure.dpi  # points of a pixel of the drawing
    for shape in layout(drawing):
        if isinstance(shape, Words):
            bold = "bold" if shape.role in ("caption", "signal", "gradient", "alarm") else "normal"
            place = {"start": "left", "middle": "center", "end": "right"}[shape.anchor]
            shade = "white" if shape.role == "alarm" else _SHADES[shape.role]
            size = (15 if shape.role == "caption" else 12) * shown
            axes.text(*shape.at, _plain(shape.text), fontsize=size, fontweight=bold, ha=place, color=shade)
            continue
        step = paths.Path.LINETO if shape.straight else paths.Path.CURVE4
        points, codes = list(shape.points), [paths.Path.MOVETO, *[step] * (len(shape.points) - 1)]
        if shape.closed:
            points, codes = [*points, points[0]], [*codes, paths.Path.CLOSEPOLY]
        filled = "white" if shape.role == "mark" else _SHADES[shape.role]
        axes.add_patch(
            patches.PathPatch(
                paths.Path(points, codes),
                facecolor=filled if shape.closed else "none",
                edgecolor=_SHADES[shape.role],
                linewidth=shape.thickness * shown,
                alpha=0.14 if "area" in shape.role else None,
                capstyle="round" if shape.role == "alarm" else "butt",
            )
        )


def _drawn(figure: Figure) -> Any:
    # The object interface: no global figure, no backend, safe in threads and on machines without a screen.
    matplotlib = optional_import("matplotlib.figure", "drawing a figure")
    canvas = matplotlib.Figure(figsize=SIZE_IN_INCHES, dpi=DOTS_PER_INCH)
    in_space = any(isinstance(mark, Surface) for mark in figure.marks)
    axes = canvas.add_subplot(projection="3d" if in_space else None)
    series = (mark for mark in figure.marks if not isinstance(mark, Reference))
    shades = {id(mark): colour(index, mark.name) for index, mark in enumerate(series)}
    _draw_bars([mark for mark in figure.marks if isinstance(mark, Bars)], axes, shades)
    for mark in figure.marks:
        if not isinstance(mark, Bars):
            _draw(mark, axes, shades.get(id(mark), REFERENCE_COLOUR))
    axes.set(xlabel=_plain(figure.x_label), ylabel=_plain(figure.y_label), title=_plain(figure.title))
    axes.spines[["top", "right"]].set_visible(False)
    if figure.y_names:
        axes.set_yticks(range(len(figure.y_names)), [_plain(name) for name in figure.y_names], fontsize=7)
        axes.invert_yaxis()
    if figure.x_log and math.isfinite(axes.dataLim.minposx):  # an axis without a positive value has no logarithm
        axes.set_xscale("log")
        _logarithmic_ticks(axes.xaxis)
    if figure.y_log and math.isfinite(axes.dataLim.minposy):
        axes.set_yscale("log")
        _logarithmic_ticks(axes.yaxis)
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend(frameon=False, fontsize="small")
    # Here, once for all files: Matplotlib draws a figure that has an engine twice a file, the first time to lay it out.
    optional_import("matplotlib.layout_engine", "drawing a figure").ConstrainedLayoutEngine().execute(canvas)
    return canvas


def _logarithmic_ticks(axis: Any) -> None:
    """As the page writes them, in plain letters, for a formula takes as long as a curve; 1, 2 and 5 on a short axis."""
    low, high = sorted(axis.get_view_interval())
    ticker = optional_import("matplotlib.ticker", "drawing a figure")
    if 0 < low < high < SHORT_AXIS * low:  # all ticks between would overlap
        axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(lambda value, place: in_words(value, plain=1e6))
    axis.set_minor_formatter(ticker.NullFormatter())


def _draw_bars(groups: list[Bars], axes: Any, shades: dict[int, str]) -> None:
    """All bars of a category stand beside each other."""
    width = WIDTH_OF_BARS / max(1, len(groups))
    for index, bars in enumerate(groups):
        shift = (index - (len(groups) - 1) / 2) * width
        places = [position + shift for position in range(len(bars.labels))]
        style = {"color": bars.colour or shades[id(bars)], "label": _label(bars.name)}
        axes.bar(places, bars.y, width, yerr=bars.error or None, **style)
    if groups and len(groups[0].labels) <= MOST_LABELLED_BARS:
        words = [_plain(label) for label in groups[0].labels]
        slanted = {"rotation": 45, "ha": "right", "fontsize": 7} if max(map(len, words)) > 3 else {}
        axes.set_xticks(range(len(words)), words, **slanted)


@singledispatch
def _draw(mark: Mark, axes: Any, shade: str) -> None:
    raise TypeError(f"No drawing for {type(mark).__name__}.")


@_draw.register
def _(mark: Line, axes: Any, shade: str) -> None:
    colour_of_line = {"": shade, INK: "black"}.get(mark.colour, mark.colour)
    style = {"linewidth": 0.6, "alpha": FAINT} if mark.faint else {}
    dash = "--" if mark.dashed else "-"
    axes.plot(mark.x, mark.y, color=colour_of_line, linestyle=dash, label=_label(mark.name), **style)


@_draw.register
def _(mark: Points, axes: Any, shade: str) -> None:
    style = {"fmt": "x" if mark.crossed else "o", "markersize": 4, "color": mark.colour or shade}
    axes.errorbar(mark.x, mark.y, yerr=mark.error or None, label=_label(mark.name), **style)


@_draw.register
def _(mark: Band, axes: Any, shade: str) -> None:
    style = {"color": mark.colour or shade, "alpha": 0.2, "linewidth": 0}
    axes.fill_between(mark.x, mark.low, mark.high, label=_label(mark.name), **style)


@_draw.register
def _(mark: Heat, axes: Any, shade: str) -> None:
    axes.figure.colorbar(axes.imshow(mark.rows, cmap="viridis"), ax=axes, use_gridspec=False, label=_plain(mark.name))


@_draw.register
def _(mark: Contour, axes: Any, shade: str) -> None:
    heights, levels = _heights(mark.rows)
    axes.set_facecolor(MISSING_COLOUR)
    filled = axes.contourf(mark.x, mark.y, heights, levels=levels, cmap="viridis")
    axes.contour(mark.x, mark.y, heights, levels=levels[1:-1], colors="white", linewidths=0.4, linestyles="solid")
    axes.set_aspect("equal")
    axes.figure.colorbar(filled, ax=axes, use_gridspec=False, label=_plain(mark.name), format="%.3g")


@_draw.register
def _(mark: Surface, axes: Any, shade: str) -> None:
    heights, levels = _heights(mark.rows)
    x, y = np.meshgrid(mark.x, mark.y)
    limits = {"vmin": levels[0], "vmax": levels[-1]}
    axes.plot_surface(x, y, heights, cmap="viridis", linewidth=0, rcount=200, ccount=200, **limits)
    axes.set_zlabel(_plain(mark.name))
    axes.set_box_aspect(None, zoom=0.85)  # room for the label of the third axis


def _heights(rows: tuple[tuple[float, ...], ...]) -> tuple[np.ndarray, np.ndarray]:
    """The heights with open places masked, and the levels to draw; a flat plane gets levels too."""
    heights = np.ma.masked_invalid(np.array(rows, dtype=float))
    low, high = (float(heights.min()), float(heights.max())) if heights.count() else (0.0, 0.0)
    return heights, np.linspace(low, high if high > low else low + max(1e-9, 1e-9 * abs(low)), LEVELS)


@_draw.register
def _(mark: Reference, axes: Any, shade: str) -> None:
    draw = axes.axhline if mark.axis == "y" else axes.axvline
    draw(mark.value, color=shade, linestyle=":", linewidth=1, label=_label(mark.name))


def _label(name: str) -> str:
    return _plain(name) if name else "_nolegend_"


def _plain(text: str) -> str:
    """The words as they are: a dollar sign would start a formula."""
    return text.replace("$", r"\$")
