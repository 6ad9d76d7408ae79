"""One training run, and how large the runs are at each preset."""

from dataclasses import dataclass
from typing import Literal

from skiplens.core.settings import option
from skiplens.studies.replicates import ReplicateSettings
from skiplens.studies.study import Preset

NORM_DEPTHS = (20, 32, 44, 56, 110)
"""Of figure 2."""


@dataclass(frozen=True)
class ShortcutTraining(ReplicateSettings):
    """A pre-activation ResNet trained on CIFAR-10; the defaults are those of figure 9."""

    data: Literal["cifar10", "digits"] = option("cifar10", "what is trained on; digits stand in for CIFAR-10")
    depth: int = option(110, "weight layers")
    shortcut_depth: int = option(2, "convolutions under each shortcut")
    epochs: int = option(164, "passes through the images")
    milestones: tuple[int, ...] = option((81, 122), "epochs after which the learning rate falls to a tenth")
    images: int | None = option(None, "training images; none: all")
    test_images: int | None = option(None, "test images; none: all")
    side: int | None = option(None, "pixels a side; none: as they are")
    width: int = option(16, "channels of the first stage")
    batch_size: int = option(128, "images of a step")
    gpu: bool = option(False, "on a GPU: bfloat16, channels last, replayed as a CUDA graph")


@dataclass(frozen=True)
class Sizes:
    """How much of everything a preset does.

    Attributes:
        norm_depths: Of figure 2.
        norm_epochs: Of figure 2.
        norm_runs: Runs of each network of figure 2.
        error_depths: Of figure 9; 36 q + 2 suits every shortcut depth.
        shortcut_depths: Of figure 9.
        error_epochs: Of figure 9.
        error_runs: Runs of each network of figure 9.
        base: What all runs share.
    """

    norm_depths: tuple[int, ...]
    norm_epochs: int
    norm_runs: int
    error_depths: tuple[int, ...]
    shortcut_depths: tuple[int, ...]
    error_epochs: int
    error_runs: int
    base: ShortcutTraining


_TINY = ShortcutTraining(data="digits", images=32, test_images=40, side=8, width=4, batch_size=32)
_SMALL = ShortcutTraining(images=128, test_images=100, side=16, width=4, batch_size=64)
_FULL = ShortcutTraining(gpu=True)

SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes((8, 14, 20), 2, 4, (38, 74), (1, 2, 3, 4), 1, 2, _TINY),
    "laptop": Sizes(NORM_DEPTHS, 2, 4, (38, 74, 110), (1, 2, 3, 4), 2, 2, _SMALL),
    "paper": Sizes(NORM_DEPTHS, 200, 5, (38, 110, 218, 434), (1, 2, 3, 4, 6), 164, 10, _FULL),
}

ONE_GPU = Sizes((20, 32, 44, 56), 10, 4, (38, 110), (1, 2, 3, 4), 3, 4, _FULL)
"""All images and whole networks of up to 110 layers, few epochs: minutes on one GPU."""
