"""The runs of figure 2, and how large they are at each preset."""

from dataclasses import dataclass
from typing import Literal

from skiplens.core.settings import option
from skiplens.studies.replicates import ReplicateSettings
from skiplens.studies.study import Preset

NETWORKS = ("mnist_chain", "mnist_residual", "mnist_residual_avgpool", "mnist_residual_isopool")
"""The paper's three and ours, whose pool has all singular values 1, from the zoo."""

PRINTED = NETWORKS[:3]
TITLES = dict(zip(NETWORKS, ("Chain", "Res", "ResAvg", "ResIso (ours)"), strict=True))


@dataclass(frozen=True)
class Digits(ReplicateSettings):
    """Networks of one initialisation on one small batch; replicates of all measures share both."""

    images: int = option(32, "images of the batch")
    source: Literal["sample", "mnist"] = option("sample", "where images are drawn: the first 2,000 of MNIST, or all")
    standardised: bool = option(False, "give the pixels mean 0 and variance 1; else they are between 0 and 1")
    learning_rate: float = option(0.1, "of full-batch gradient descent")


@dataclass(frozen=True)
class Losses(Digits):
    """Training losses of all networks in several trials."""

    standardised: bool = option(True, "give the pixels mean 0 and variance 1; else they are between 0 and 1")
    trials: int = option(10, "initialisations and batches")
    iterations: int = option(20, "updates")


@dataclass(frozen=True)
class Composites(Digits):
    """Jacobians from the first block's input to the logits while the paper's networks train."""

    moments: tuple[int, ...] = option(tuple(range(10)), "numbers of updates before each Jacobian")


@dataclass(frozen=True)
class Starts(Digits):
    """The same before training, of the two residual networks."""

    final_norm: bool = option(True, "with the batch norm in front of the last layer")


@dataclass(frozen=True)
class Parameters(Digits):
    """Jacobians of the logits in the parameters, before training."""

    standardised: bool = option(True, "give the pixels mean 0 and variance 1; else they are between 0 and 1")


@dataclass(frozen=True)
class Blocks(Digits):
    """Jacobians of single blocks before training, with the statistics of batch norm frozen."""

    looked_at: int = option(4, "images whose Jacobians are taken")


@dataclass(frozen=True)
class Sizes:
    """How much of everything a preset does.

    Attributes:
        images: Of a batch.
        loss_runs: Runs of several trials each.
        trials: Of each of these runs.
        composites: Trials whose Jacobians are followed in training.
        moments: At which numbers of updates.
        starts: Trials whose Jacobians are taken before training.
        without_norm: Trials that are also looked at without the last batch norm.
        parameters: Trials whose Jacobians in the parameters are taken.
        blocks: Trials whose blocks are looked at.
        source: Of the images.
    """

    images: int = 32
    loss_runs: int = 8
    trials: int = 10
    composites: int = 5
    moments: tuple[int, ...] = (0, 5, 9)
    starts: int = 24
    without_norm: int = 16
    parameters: int = 12
    blocks: int = 12
    source: Literal["sample", "mnist"] = "sample"


SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes(8, 1, 3, 2, (0, 9), 2, 2, 2, 2),
    "laptop": Sizes(),
    "paper": Sizes(32, 100, 10, 150, tuple(range(10)), 100, 60, 60, 60, source="mnist"),
}
