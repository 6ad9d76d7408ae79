"""Figure 3: settings of its runs, and how large they are at each preset."""

from dataclasses import dataclass
from typing import Literal

from skiplens.core.settings import option
from skiplens.studies.li2016_shortcuts.digits import Source
from skiplens.studies.replicates import ReplicateSettings, replicated
from skiplens.studies.study import Preset
from skiplens.sweeps import Run

_MEASURE = "skiplens.studies.li2016_shortcuts.norms.measure:norm_history"
Activation = Literal["identity", "relu"]
CLAIM_EPOCHS = (50, 100, 200, 500, 1000)
"""At which norms are compared."""


@dataclass(frozen=True)
class NormHistory(ReplicateSettings):
    """Norms of many 2-shortcut networks of one depth, trained as one program."""

    activation: Activation = option("identity", "between the two matrices of a unit")
    depth: int = option(4, "weight matrices (D)")
    networks: int = option(10, "networks with different initial weights")
    learning_rate: float = option(0.1, "of gradient descent")
    epochs: int = option(1000, "updates, each with all samples")
    every: int = option(10, "epochs between two looks")
    source: Source = option("mnist", "digits: the embedded ones or all of MNIST")
    samples: int | None = option(None, "first digits only, whitened by themselves")


@dataclass(frozen=True)
class Sizes:
    """How large the runs of one preset are."""

    networks: int
    linear_depths: tuple[int, ...]
    rectified_depths: tuple[int, ...]
    source: Source
    rectified_samples: int


SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes(20, (4, 8, 16, 32), (4, 8, 16), "sample", 200),
    "laptop": Sizes(20, (4, 8, 16, 32, 64, 96), (4, 8, 16, 32, 64), "mnist", 1000),
    "paper": Sizes(20, (4, 8, 16, 32, 64, 96), (4, 8, 16, 32, 64, 96), "mnist", 60000),
}


def runs(preset: Preset, seed: int) -> list[Run]:
    """Linear networks and networks with ReLU, each of several depths."""
    sizes = SIZES[preset]
    linear = NormHistory(networks=sizes.networks, source=sizes.source)
    source: Source = "mnist" if preset == "paper" else "sample"  # the embedded digits are the first of MNIST
    rectified = NormHistory(activation="relu", networks=sizes.networks, source=source, samples=sizes.rectified_samples)
    return [
        *replicated(_MEASURE, linear, 1, seed, _cost, depth=sizes.linear_depths),
        *replicated(_MEASURE, rectified, 1, seed, _cost, depth=sizes.rectified_depths),
    ]


def _cost(settings: NormHistory) -> float:
    """Products of matrices: with ReLU every sample has its own."""
    return settings.depth * settings.networks * (1 + (settings.samples or 0) / 50)
