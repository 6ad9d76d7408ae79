"""Figure 1: both histograms with their limits."""

from collections.abc import Sequence

import torch

from skiplens.figures import Figure, Line
from skiplens.figures.figure import Mark, numbers
from skiplens.figures.style import colour
from skiplens.readings import Measurement
from skiplens.studies.macdonald2023_regularity.histograms import histogram
from skiplens.studies.macdonald2023_regularity.linear.claims import LAWS
from skiplens.studies.selection import stacked

NAMES = {"chain": "A", "skip": "I + A"}
LARGEST, BINS = 2.0, 30


def fig1(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The singular values of A and of I + A."""
    edges = torch.linspace(0, LARGEST, BINS + 1, dtype=torch.float64)
    grid = torch.linspace(0, LARGEST, 401, dtype=torch.float64)
    marks: list[Mark] = []
    for index, (name, title) in enumerate(NAMES.items()):
        marks += histogram(stacked(readings, name), edges, title, colour(index))
        marks.append(Line(numbers(grid), numbers(LAWS[name].density(grid)), f"{title}, limit", True, colour(index)))
    width = readings[0].setting("width")
    return (
        Figure(
            name="singular_values",
            title=f"Figure 1: singular values of a linear layer, {width}×{width}",
            caption="A skip around a layer at PyTorch's default initialisation moves its singular values upwards. "
            f"Histograms are means over {len(readings)} draws with standard errors, dashed lines the limits of "
            "infinite width.",
            x_label="singular value",
            y_label="density",
            marks=tuple(marks),
        ),
    )
