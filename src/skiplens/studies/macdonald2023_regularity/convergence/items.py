"""The item of theorem 5.1."""

from dataclasses import dataclass

from skiplens.studies.macdonald2023_regularity.convergence import measure, practice
from skiplens.studies.macdonald2023_regularity.convergence.claims import CLAIMS
from skiplens.studies.macdonald2023_regularity.convergence.figures import thm5_1
from skiplens.studies.macdonald2023_regularity.convergence.settings import (
    Descents,
    DigitCertificate,
    Hypotheses,
    OneLayer,
    Repaired,
    Trapped,
)
from skiplens.studies.macdonald2023_regularity.descent.items import quadratics
from skiplens.studies.raw_tables import raw_tables
from skiplens.studies.replicates import ReplicateSettings, replicated
from skiplens.studies.study import Item, Preset
from skiplens.sweeps import Run

DIGIT_REPLICATES = 8
"""Of step sizes on digits, which vary more and cost little."""


@dataclass(frozen=True)
class Sizes:
    """How much of everything a preset does: replicates, and steps of each kind of descent."""

    replicates: int
    logistic: int
    square: int
    printed: int
    repaired: int
    digits: int


SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes(replicates=4, logistic=900, square=1500, printed=30, repaired=15, digits=10),
    "laptop": Sizes(replicates=5, logistic=2000, square=2000, printed=500, repaired=200, digits=100),
    "paper": Sizes(replicates=10, logistic=100_000, square=100_000, printed=100_000, repaired=10_000, digits=1000),
}


def runs(preset: Preset, seed: int) -> list[Run]:
    """The counterexample, one weight, both networks, digits, hypotheses; and the least squares of theorem 2.3."""
    sizes = SIZES[preset]
    planned: list[tuple[str, ReplicateSettings, int]] = [
        ("trapped_descent", Trapped(cost="logistic", iterations=sizes.logistic), sizes.replicates),
        ("trapped_descent", Trapped(cost="square", iterations=sizes.square), sizes.replicates),
        ("trapped_descent", Trapped(cost="logistic", start="free", iterations=sizes.logistic), 1),
        ("trapped_descent", Trapped(cost="square", start="free", iterations=sizes.square), 1),
        ("one_layer_bounds", OneLayer(), 1),
        ("printed_network_descent", Descents(iterations=sizes.printed), sizes.replicates),
        ("repaired_descent", Repaired(cost="square", iterations=sizes.repaired), sizes.replicates),
        ("repaired_descent", Repaired(cost="cross_entropy", iterations=sizes.repaired), sizes.replicates),
    ]
    descents = (replicated(f"{measure.__name__}:{name}", base, count, seed) for name, base, count in planned)
    digits = DigitCertificate(iterations=sizes.digits)
    return [
        *(run for each in descents for run in each),
        *replicated(f"{practice.__name__}:digit_certificates", digits, DIGIT_REPLICATES, seed),
        *replicated(f"{practice.__name__}:hypotheses_met", Hypotheses(), 1, seed),
        *quadratics(preset, seed),
    ]


ITEMS = (
    Item(
        "thm5_1",
        "convergence from any start: a counterexample, what holds, and a repaired network",
        runs,
        CLAIMS,
        thm5_1,
        raw_tables,
        (
            "The theorem gives no example. Here: a network of three weights that meets every hypothesis (starts of "
            "replicates differ a little), one normalised weight, the paper's network and the repaired one with 6 "
            "features and 4 samples, and the paper's network with 784, 32, 16 and 10 units on 32 of the first 2,000 "
            "MNIST digits.",
            "The repaired network is ours: its first layer is not normalised, and a tanh stands before each branch.",
        ),
    ),
)
