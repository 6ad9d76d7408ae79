"""The item of theorem 4.7."""

from skiplens.studies.macdonald2023_regularity.regularity import measure
from skiplens.studies.macdonald2023_regularity.regularity.claims import CLAIMS
from skiplens.studies.macdonald2023_regularity.regularity.figures import thm4_7
from skiplens.studies.raw_tables import raw_tables
from skiplens.studies.replicates import replicated
from skiplens.studies.study import Item, Preset
from skiplens.sweeps import Run

REPLICATES: dict[Preset, int] = {"smoke": 16, "laptop": 20, "paper": 200}
POINTS: dict[Preset, int] = {"smoke": 2, "laptop": 4, "paper": 20}
"""Random parameters of each size."""


def runs(preset: Preset, seed: int) -> list[Run]:
    """Networks at random parameters, and first layers."""
    count, module = REPLICATES[preset], measure.__name__
    return [
        *replicated(
            f"{module}:regular_points", measure.Points(points=POINTS[preset]), count, seed, cost=lambda _: 100.0
        ),
        *replicated(f"{module}:first_layers", measure.FirstLayer(), count, seed),
    ]


ITEMS = (
    Item(
        "thm4_7",
        "regularity from skips around contracting branches",
        runs,
        CLAIMS,
        thm4_7,
        raw_tables,
        (
            "The theorem gives no example: here the normalised residual network of theorem 5.1 with 6 features, 4 "
            "samples, layers of 5, 4 and 3 units and tanh.",
        ),
    ),
)
