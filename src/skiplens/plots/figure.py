"""What a figure shows, without a plotting library: labelled axes and the marks between them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

Values = tuple[float, ...]

Places = tuple[tuple[str, float], ...]


def numbers(values: Any) -> Values:
    """A tensor, array or sequence as a tuple of floats, so that a figure is frozen and knows no library.

    An infinite number becomes NaN: a place that no axis has is drawn as a gap.
    """
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().double().numpy()
    array = np.asarray(values, dtype=float).ravel()
    return tuple(np.where(np.isfinite(array), array, np.nan).tolist())


def in_order(names: Iterable[str], start: int = 0) -> Places:
    """Each name with its place when they stand side by side, the first at `start`."""
    return tuple((name, float(place)) for place, name in enumerate(names, start))


@dataclass(frozen=True)
class Line:
    """A curve through (x, y), cut where y is NaN.

    `colour` replaces the next one of the palette; ``"ink"`` is the colour of the text. `faint` is for one of many.
    """

    x: Values
    y: Values
    name: str = ""
    dashed: bool = False
    colour: str = ""
    faint: bool = False


@dataclass(frozen=True)
class Points:
    """Separate points, with error bars where `error` (one standard error) is given and words where `labels` are.

    They are crosses where `crossed`; `colour` replaces the next one of the palette.
    """

    x: Values
    y: Values
    name: str = ""
    error: Values = ()
    labels: tuple[str, ...] = ()
    colour: str = ""
    crossed: bool = False


@dataclass(frozen=True)
class Bars:
    """Bars of height y over the categories `labels`, with error bars where `error` is given.

    `colour` replaces the next one of the palette.
    """

    labels: tuple[str, ...]
    y: Values
    name: str = ""
    error: Values = ()
    colour: str = ""


@dataclass(frozen=True)
class Band:
    """The area between two curves: an uncertainty or a bundle; `colour` replaces the next one of the palette."""

    x: Values
    low: Values
    high: Values
    name: str = ""
    colour: str = ""


@dataclass(frozen=True)
class Heat:
    """A matrix as colours; the first row is at the top. `labels` name rows and columns of a matrix between equals.

    `pictures` show them: an address of each, as `thumbnails` makes it.
    """

    rows: tuple[Values, ...]
    name: str = ""
    labels: tuple[str, ...] = ()
    pictures: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Plane:
    x: Values
    y: Values
    rows: tuple[Values, ...]
    name: str = ""


class Contour(_Plane):
    """Heights over a plane as coloured levels: `rows[j][i]` is the height at (x[i], y[j]); NaN is left open."""


class Surface(_Plane):
    """The same heights as a surface in space; it is drawn alone, and `name` labels the third axis."""


@dataclass(frozen=True)
class Reference:
    """A level to compare with: a line across the whole figure."""

    value: float
    name: str = ""
    axis: Literal["x", "y"] = "y"


Mark = Line | Points | Bars | Band | Heat | Contour | Surface | Reference


@dataclass(frozen=True)
class Figure:
    """Axes, marks and the sentence that says what is to be seen.

    Args:
        name: Names the files, e.g. ``"parameters_by_block"``.
        title: What the figure shows, in a few words.
        caption: What a person should see in it, in a sentence or two; also what a screen reader says.
        x_label: Quantity and unit along x.
        y_label: Quantity and unit along y.
        marks: What is drawn, in order.
        x_log: Whether x is logarithmic.
        y_log: Whether y is logarithmic.
        y_names: What stands at 0, 1, … along y, from the top, where these are things and no numbers.
        block_places: Where residual blocks stand along x, as name and place; a page picks them out there.
    """

    name: str
    title: str
    caption: str
    x_label: str
    y_label: str
    marks: tuple[Mark, ...] = field(default=())
    x_log: bool = False
    y_log: bool = False
    block_places: Places = ()
    y_names: tuple[str, ...] = ()

    def _repr_svg_(self) -> str:
        from skiplens.plots.matplotlib_file import figure_bytes  # which knows this file

        return figure_bytes(self, "svg").decode()


def bundle(x: Tensor, curves: Tensor, name: str, index: int, logarithmic: bool = False) -> tuple[Line | Band, ...]:
    """The mean of the rows of `curves` as a line and their range as an area, both in the index-th colour.

    They are drawn where all rows are finite; a `logarithmic` mean is that of logarithms.
    """
    seen = curves.isfinite().all(0) & ((curves > 0).all(0) | (not logarithmic))
    places, rows = numbers(x[seen]), curves[:, seen].double()
    mean = rows.log().mean(0).exp() if logarithmic else rows.mean(0)
    line = Line(places, numbers(mean), name, colour=colour(index))
    if len(rows) < 2 or not bool(seen.any()):
        return (line,)
    low, high = torch.aminmax(rows, dim=0)
    return Band(places, numbers(low), numbers(high), colour=colour(index)), line


def drawn(reading: Any, figures: tuple[Callable[[Any], Figure | None], ...]) -> tuple[Figure, ...]:
    """The figures of a reading, in order, without those for which it has nothing to show."""
    return tuple(figure for figure in (draw(reading) for draw in figures) if figure is not None)


# Most are Okabe and Ito's, told apart by colour-blind readers.
_BLUE, _PURPLE, _GREY = "#0072B2", "#CC79A7", "#7F7F7F"
PALETTE = (_BLUE, _PURPLE, "#8C6D31", "#56B4E9", "#44337A", "#C0A900", _GREY)
"""Colours of series that mean nothing else: blue is what was measured, purple what it is compared with."""
COLOURS = {
    "signal": "#009E73", "gradient": "#D55E00",  # green and orange, as in the drawing of the network, and nothing else
    "branch": _BLUE, "branch alone": _BLUE, "with its shortcut": _PURPLE, "shortcut": _GREY,
    "holds": _BLUE, "cannot be decided": _GREY, "fails": "#B3261E",  # as a page writes what is critical
}  # fmt: skip
"""What a colour means wherever a series has this name."""
DARK = {
    _BLUE: "#56B4E9", "#56B4E9": _BLUE, "#009E73": "#3FB98F", "#D55E00": "#F0A440", "#B3261E": "#FF8A80",
    "#8C6D31": "#A88B5A", "#44337A": "#A79BE8", "#C0A900": "#E6D14F",
}  # fmt: skip
"""What becomes of them on a dark page; the others stay."""
REFERENCE_COLOUR = _GREY
INK = "ink"  # of theory: the colour of the text, whatever it is, for a page has a light and a dark look
FAINT = 0.35  # opacity of one line of many
LEVELS = 21  # of contours
MOST_LABELLED_BARS = 24


def colour(index: int, name: str = "") -> str:
    """The colour of the index-th series: that of its name where that means something."""
    return COLOURS.get(name, PALETTE[index % len(PALETTE)])
