"""Figure 3: mean Frobenius norms against the epoch, one curve a depth."""

from collections.abc import Sequence

from skiplens.figures import Figure
from skiplens.figures.figure import Mark
from skiplens.readings import Measurement
from skiplens.studies.curves import curve
from skiplens.studies.selection import chosen, values


def figures(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Left: linear. Right: with ReLU between the matrices."""
    return (
        _panel(readings, "identity", "left", "without nonlinearities"),
        _panel(readings, "relu", "right", "with ReLUs at mid positions"),
    )


def _panel(readings: Sequence[Measurement], activation: str, side: str, words: str) -> Figure:
    marks: list[Mark] = []
    for number, depth in enumerate(values(readings, "depth", activation=activation)):
        (reading,) = chosen(readings, activation=activation, depth=depth)
        marks += curve(reading["epoch"], reading["norm"].T, f"depth {depth}", number)
    return Figure(
        name=f"norms_{side}",
        title=f"Figure 3 {side}: 2-shortcut networks {words}",
        caption="Mean Frobenius norm of a network's matrices against the epoch, one line a depth. Bands are one "
        "standard deviation over networks.",
        x_label="epoch",
        y_label="mean of ‖W‖_F over the matrices",
        marks=tuple(marks),
    )
