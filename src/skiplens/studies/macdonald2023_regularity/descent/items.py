"""The item of theorem 2.3."""

from skiplens.studies.macdonald2023_regularity.descent import measure
from skiplens.studies.macdonald2023_regularity.descent.claims import CLAIMS
from skiplens.studies.macdonald2023_regularity.descent.figures import thm2_3
from skiplens.studies.raw_tables import raw_tables
from skiplens.studies.replicates import replicated
from skiplens.studies.study import Item, Preset
from skiplens.sweeps import Run

REPLICATES: dict[Preset, int] = {"smoke": 3, "laptop": 6, "paper": 50}
ITERATIONS: dict[Preset, int] = {"smoke": 40, "laptop": 200, "paper": 2000}


def quadratics(preset: Preset, seed: int) -> list[Run]:
    """Least squares, which theorem 5.1 looks at again."""
    return replicated(f"{measure.__name__}:descent_quadratic", measure.Quadratic(), REPLICATES[preset], seed)


def runs(preset: Preset, seed: int) -> list[Run]:
    """Least squares and networks."""
    base = measure.NonConvex(iterations=ITERATIONS[preset])
    networks = replicated(f"{measure.__name__}:descent_network", base, REPLICATES[preset], seed)
    return [*quadratics(preset, seed), *networks]


ITEMS = (
    Item(
        "thm2_3",
        "gradient descent at a linear rate",
        runs,
        CLAIMS,
        thm2_3,
        raw_tables,
        (
            "The theorem gives no example: here least squares, whose constants are singular values, and our repaired "
            "network of theorem 5.1, whose constants are certified.",
        ),
    ),
)
