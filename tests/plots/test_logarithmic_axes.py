"""Ticks of logarithmic axes: few on short axes, powers of ten on long ones."""

from skiplens.plots.figure import Figure, Line
from skiplens.plots.matplotlib_file import _drawn


def labels(x: tuple[float, ...]) -> list[str]:
    """The words at the ticks inside of the axis, minor ones included."""
    figure = Figure("f", "title", "caption", "x", "y", marks=(Line(x, x, "line"),), x_log=True)
    canvas = _drawn(figure)
    canvas.draw_without_rendering()
    (axes,) = canvas.axes
    low, high = axes.get_xlim()
    ticks = [*axes.xaxis.get_major_ticks(), *axes.xaxis.get_minor_ticks()]
    return [tick.label1.get_text() for tick in ticks if low <= tick.get_loc() <= high and tick.label1.get_text()]


def test_a_short_axis_has_ticks_that_do_not_overlap():
    assert labels((125.0, 4000.0)) == ["200", "500", "1000", "2000"]


def test_a_long_axis_has_powers_of_ten():
    found = labels((1.0, 1e6))
    assert found == ["10⁰", "10¹", "10²", "10³", "10⁴", "10⁵", "10⁶"]  # plain words: a formula takes far longer to draw
