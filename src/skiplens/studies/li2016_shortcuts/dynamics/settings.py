"""Figures 5 and 6: settings of their runs, and how large they are at each preset."""

from dataclasses import dataclass

from skiplens.core.settings import option
from skiplens.studies.li2016_shortcuts.digits import Source
from skiplens.studies.li2016_shortcuts.families import FamilyName
from skiplens.studies.replicates import ReplicateSettings, replicated
from skiplens.studies.study import Preset
from skiplens.sweeps import Run

_MEASURES = "skiplens.studies.li2016_shortcuts.dynamics.measure"


@dataclass(frozen=True)
class Training(ReplicateSettings):
    """Gradient descent of a linear network on all digits."""

    family: FamilyName = option("2-shortcut", "initialisation and shortcuts")
    depth: int = option(16, "weight matrices (D)")
    learning_rate: float = option(0.1, "of gradient descent")
    epochs: int = option(1000, "updates, each with all samples")
    source: Source = option("mnist", "digits: the embedded ones or all of MNIST")


@dataclass(frozen=True)
class SpectraAtLosses(Training):
    """The Hessian's spectrum where the loss first falls to given values."""

    losses: tuple[float, ...] = option((), "losses at which the spectrum is taken, descending")


@dataclass(frozen=True)
class Descent(Training):
    """Loss, gradient and index in the first epochs."""

    epochs: int = option(80, "updates, each with all samples")
    every: int = option(2, "epochs between two looks")


@dataclass(frozen=True)
class Sizes:
    """How large the runs of one preset are.

    Attributes:
        replicates: Runs of each kind of network.
        crossing_replicates: Runs of 2-shortcut and of orthogonal networks where their condition numbers meet.
        depth: 16 in the paper.
        losses: At which spectra of 2-shortcut and of orthogonal networks are taken.
        crossing_losses: Where they meet.
        end_losses: The last ones.
        one_shortcut_losses: Those for 1-shortcut networks.
        xavier_losses: Those for Xavier networks, which start below the larger ones and hardly get to the smallest.
        slow_epochs: Epochs at the lowest learning rate; the others have 1,000.
        source: The digits.
    """

    replicates: int
    crossing_replicates: int
    depth: int
    losses: tuple[float, ...]
    crossing_losses: tuple[float, ...]
    end_losses: tuple[float, ...]
    one_shortcut_losses: tuple[float, ...]
    xavier_losses: tuple[float, ...]
    slow_epochs: int = 3000
    source: Source = "mnist"


LOSSES = (4.5, 4.0, 3.0, 2.0, 1.5, 1.0, 0.7, 0.5, 0.45)
CROSSING, END = (0.4,), (0.36, 0.345)
ALL = LOSSES + CROSSING + END

SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes(3, 3, 6, (4.5, 3.0, 2.0), (1.0,), (0.5,), (2.0, 1.0), (0.5,), slow_epochs=800, source="sample"),
    "laptop": Sizes(10, 30, 16, LOSSES, CROSSING, END, (4.5, 3.0, 2.0, 1.0, 0.5), (0.7, 0.5, 0.45)),
    "paper": Sizes(20, 50, 16, LOSSES, CROSSING, END, ALL, ALL),
}

LEARNING_RATES: dict[FamilyName, float] = {
    "xavier": 10**-1.75,
    "orthogonal": 0.01,
    "1-shortcut": 0.01,
    "2-shortcut": 0.1,
}
"""Curves against the loss hardly depend on them, as long as the descent is stable."""


def spectra(preset: Preset, seed: int) -> list[Run]:
    """Spectra at losses: figure 5, and the left half of figure 6."""
    sizes = SIZES[preset]
    plans: tuple[tuple[FamilyName, int, tuple[float, ...]], ...] = (
        ("xavier", sizes.replicates, sizes.xavier_losses),
        ("orthogonal", sizes.replicates, sizes.losses),
        ("orthogonal", sizes.crossing_replicates, sizes.crossing_losses),
        ("orthogonal", sizes.replicates, sizes.end_losses),
        ("1-shortcut", sizes.replicates, sizes.one_shortcut_losses),
        ("2-shortcut", sizes.replicates, sizes.losses),
        ("2-shortcut", sizes.crossing_replicates, sizes.crossing_losses),
        ("2-shortcut", sizes.replicates, sizes.end_losses),
    )
    return [run for plan in plans for run in _family(plan, sizes, seed)]


def descents(preset: Preset, seed: int) -> list[Run]:
    """The first epochs of 2-shortcut networks: the right half of figure 6."""
    sizes = SIZES[preset]
    base = Descent(depth=sizes.depth, source=sizes.source)
    return replicated(f"{_MEASURES}:descent", base, sizes.replicates, seed, lambda settings: 0.4)


def _family(plan: tuple[FamilyName, int, tuple[float, ...]], sizes: Sizes, seed: int) -> list[Run]:
    family, replicates, losses = plan
    base = SpectraAtLosses(
        family=family,
        depth=sizes.depth,
        learning_rate=LEARNING_RATES[family],
        epochs=sizes.slow_epochs if LEARNING_RATES[family] == 0.01 else 1000,
        source=sizes.source,
        losses=losses,
    )
    return replicated(f"{_MEASURES}:spectra_at_losses", base, replicates, seed, lambda settings: len(losses) / 10)
