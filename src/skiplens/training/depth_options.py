"""What is looked at, and how often, when depth is followed during training."""

from dataclasses import dataclass
from typing import Literal

from skiplens.core.errors import SettingsError
from skiplens.core.settings import Settings, option


@dataclass(frozen=True)
class DepthOptions(Settings):
    """Options of `depth_during_training`."""

    every: int = option(100, "steps between two looks; the start and the end are looked at too")
    samples: int = option(64, "samples to look at, the first of the data, where no others are given")
    mode: Literal["train", "eval"] = option("train", "mode of the model while looked at; train: batch statistics")
    centre: bool = option(True, "remove the mean over the outputs, which a softmax does not see")
    centre_samples: bool = option(True, "remove the mean over the samples, which tells none from another")
    forces: bool = option(True, "also the forces of theorems 3 and 4 and Euler's identity, for two more passes a block")
    seed: int = option(0, "names the random direction where the signal has no frozen form")

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        super().__post_init__()
        for name in ("every", "samples"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name}={getattr(self, name)}; ask for at least 1.")
