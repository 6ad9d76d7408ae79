"""Figure 4: log10 of the initial condition number against depth."""

from collections.abc import Sequence

from skiplens.figures import Figure
from skiplens.figures.figure import Mark
from skiplens.readings import Measurement
from skiplens.studies.curves import curve
from skiplens.studies.li2016_shortcuts.initial_point.claims import log_conditions
from skiplens.studies.li2016_shortcuts.initial_point.settings import FAMILY_NAMES


def figures(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """One curve a kind of network."""
    marks: list[Mark] = []
    for number, family in enumerate(FAMILY_NAMES):
        marks += curve(*log_conditions(readings, family), family, number)
    return (
        Figure(
            name="initial_condition_numbers",
            title="Figure 4: initial condition numbers of linear networks",
            caption="2-shortcut networks have the same condition number at every depth. It grows linearly for "
            "1-shortcut networks and orthogonal initialisation, and exponentially for Xavier's, up to what float64 can "
            "tell. Bands are one standard deviation.",
            x_label="depth (weight matrices)",
            y_label="log10(|λ|max / |λ|(0.1))",
            marks=tuple(marks),
        ),
    )
