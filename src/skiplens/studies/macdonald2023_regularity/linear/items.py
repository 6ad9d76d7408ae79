"""The item of figure 1."""

from skiplens.studies.macdonald2023_regularity.linear import measure
from skiplens.studies.macdonald2023_regularity.linear.claims import CLAIMS
from skiplens.studies.macdonald2023_regularity.linear.figures import fig1
from skiplens.studies.raw_tables import raw_tables
from skiplens.studies.replicates import replicated
from skiplens.studies.study import Item, Preset
from skiplens.sweeps import Run

REPLICATES: dict[Preset, int] = {"smoke": 12, "laptop": 40, "paper": 200}


def runs(preset: Preset, seed: int) -> list[Run]:
    """One matrix a run."""
    return replicated(f"{measure.__name__}:skip_spectra", measure.LinearLayer(), REPLICATES[preset], seed)


ITEMS = (
    Item(
        "fig1",
        "singular values of a random linear layer with and without a skip",
        runs,
        CLAIMS,
        fig1,
        raw_tables,
        (
            "The paper does not say how A is drawn: here as PyTorch initialises a 500×500 linear layer, drawn again "
            "for several seeds.",
        ),
    ),
)
