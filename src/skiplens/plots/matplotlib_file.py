"""A figure as a PNG or SVG file; the one door to Matplotlib."""

import io
import math
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np

from skiplens.base.files import write_atomically
from skiplens.base.optional_imports import optional_import
from skiplens.plots import Band, Bars, Contour, Figure, Heat, Line, Points, Reference, Surface
from skiplens.plots.figure import FAINT, INK, LEVELS, MOST_LABELLED_BARS, REFERENCE_COLOUR, Mark, colour

SIZE_IN_INCHES, DOTS_PER_INCH = (6.4, 4.0), 150
MISSING_COLOUR = "#BFBFBF"  # behind contours: where there is nothing to draw, this is seen
SHORT_AXIS = 200.0  # largest over smallest value of a logarithmic axis whose ticks need spacing
WIDTH_OF_BARS = 0.8  # the share of a category that its bars fill together


def save_figure(figure: Figure, path: Path | str) -> None:
    """Draw `figure` into `path`; the ending (.png, .svg, .pdf) says how."""
    path = Path(path)
    canvas = _drawn(figure)
    write_atomically(path, lambda file: canvas.savefig(file, format=path.suffix[1:], dpi=DOTS_PER_INCH))


def figure_bytes(figure: Figure, ending: str) -> bytes:
    """The same file as its content, for those who do not want it on disk."""
    content = io.BytesIO()
    _drawn(figure).savefig(content, format=ending, dpi=DOTS_PER_INCH)
    return content.getvalue()


def _drawn(figure: Figure) -> Any:
    # The object interface: no global figure, no backend, safe in threads and on machines without a screen.
    matplotlib = optional_import("matplotlib.figure", "drawing a figure")
    canvas = matplotlib.Figure(figsize=SIZE_IN_INCHES, layout="constrained")
    in_space = any(isinstance(mark, Surface) for mark in figure.marks)
    axes = canvas.add_subplot(projection="3d" if in_space else None)
    series = (mark for mark in figure.marks if not isinstance(mark, Reference))
    shades = {id(mark): colour(index) for index, mark in enumerate(series)}
    _draw_bars([mark for mark in figure.marks if isinstance(mark, Bars)], axes, shades)
    for mark in figure.marks:
        if not isinstance(mark, Bars):
            _draw(mark, axes, shades.get(id(mark), REFERENCE_COLOUR))
    axes.set(xlabel=_plain(figure.x_label), ylabel=_plain(figure.y_label), title=_plain(figure.title))
    axes.spines[["top", "right"]].set_visible(False)
    if figure.x_log and math.isfinite(axes.dataLim.minposx):  # an axis without a positive value has no logarithm
        axes.set_xscale("log")
        _space_ticks(axes.xaxis)
    if figure.y_log and math.isfinite(axes.dataLim.minposy):
        axes.set_yscale("log")
        _space_ticks(axes.yaxis)
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend(frameon=False, fontsize="small")
    return canvas


def _space_ticks(axis: Any) -> None:
    """Ticks at 1, 2 and 5 times powers of ten on a short logarithmic axis, where all of them would overlap."""
    low, high = sorted(axis.get_view_interval())
    if not 0 < low < high < SHORT_AXIS * low:
        return
    ticker = optional_import("matplotlib.ticker", "drawing a figure")
    axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axis.set_minor_formatter(ticker.NullFormatter())


def _draw_bars(groups: list[Bars], axes: Any, shades: dict[int, str]) -> None:
    """All bars of a category stand beside each other."""
    width = WIDTH_OF_BARS / max(1, len(groups))
    for index, bars in enumerate(groups):
        shift = (index - (len(groups) - 1) / 2) * width
        places = [position + shift for position in range(len(bars.labels))]
        style = {"color": shades[id(bars)], "label": _label(bars.name)}
        axes.bar(places, bars.y, width, yerr=bars.error or None, **style)
    if groups and len(groups[0].labels) <= MOST_LABELLED_BARS:
        words = [_plain(label) for label in groups[0].labels]
        axes.set_xticks(range(len(words)), words, rotation=45, ha="right", fontsize=7)


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
    axes.errorbar(mark.x, mark.y, yerr=mark.error or None, fmt="o", markersize=4, color=shade, label=_label(mark.name))


@_draw.register
def _(mark: Band, axes: Any, shade: str) -> None:
    style = {"color": mark.colour or shade, "alpha": 0.2, "linewidth": 0}
    axes.fill_between(mark.x, mark.low, mark.high, label=_label(mark.name), **style)


@_draw.register
def _(mark: Heat, axes: Any, shade: str) -> None:
    axes.figure.colorbar(axes.imshow(mark.rows, cmap="viridis"), ax=axes, label=_plain(mark.name))


@_draw.register
def _(mark: Contour, axes: Any, shade: str) -> None:
    heights, levels = _heights(mark.rows)
    axes.set_facecolor(MISSING_COLOUR)
    filled = axes.contourf(mark.x, mark.y, heights, levels=levels, cmap="viridis")
    axes.contour(mark.x, mark.y, heights, levels=levels[1:-1], colors="white", linewidths=0.4, linestyles="solid")
    axes.set_aspect("equal")
    axes.figure.colorbar(filled, ax=axes, label=_plain(mark.name), format="%.3g")


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
