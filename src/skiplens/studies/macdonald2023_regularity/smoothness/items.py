"""The item of theorem 4.5."""

from skiplens.studies.macdonald2023_regularity.smoothness import measure
from skiplens.studies.macdonald2023_regularity.smoothness.claims import CLAIMS
from skiplens.studies.macdonald2023_regularity.smoothness.figures import thm4_5
from skiplens.studies.raw_tables import raw_tables
from skiplens.studies.replicates import replicated
from skiplens.studies.study import Item, Preset
from skiplens.sweeps import Run

REPLICATES: dict[Preset, int] = {"smoke": 4, "laptop": 10, "paper": 40}
POINTS: dict[Preset, tuple[int, int]] = {"smoke": (1, 3), "laptop": (5, 100), "paper": (40, 500)}
"""Random parameters of each size, and steps of the ascent."""


def runs(preset: Preset, seed: int) -> list[Run]:
    """Hessians of networks, and three kinds of layers."""
    count, (points, ascent) = REPLICATES[preset], POINTS[preset]
    module, layers = measure.__name__, measure.Layers()
    curvatures = measure.Curvatures(points=points, ascent=ascent)
    return [
        *replicated(f"{module}:smooth_hessians", curvatures, count, seed, cost=lambda _: 100.0),
        *replicated(f"{module}:batch_norm_gains", layers, count, seed),
        *replicated(f"{module}:entry_curvatures", layers, count, seed),
        *replicated(f"{module}:slope_quotients", layers, 1, seed),
    ]


ITEMS = (
    Item(
        "thm4_5",
        "smooth losses from normalised layers",
        runs,
        CLAIMS,
        thm4_5,
        raw_tables,
        (
            "The theorem gives no example: here 6 features, 4 samples, layers of 5, 4 and 3 units, softplus, "
            "square cost; rows are divided by the root of their number, since rows below 1 do not make a matrix of "
            "norm below 1.",
        ),
    ),
)
