"""Ticks of logarithmic axes: few on short axes, written as people do."""

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
    assert labels((125.0, 4000.0)) == ["200", "500", "1,000", "2,000"]


def test_a_long_axis_is_written_out_as_on_the_page_and_has_powers_of_ten_beyond():
    assert labels((1e-3, 1e3)) == ["0.001", "0.01", "0.1", "1", "10", "100", "1,000"]
    assert labels((1.0, 1e7))[-3:] == ["100,000", "10⁶", "10⁷"]  # plain words: a formula takes far longer to draw
    assert labels((1e-6, 1e-2))[:3] == ["10⁻⁶", "10⁻⁵", "0.0001"]
