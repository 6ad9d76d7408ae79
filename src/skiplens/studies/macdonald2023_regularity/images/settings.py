"""One training run, and how large the runs are at each preset."""

from dataclasses import dataclass
from typing import Literal

from skiplens.core.settings import option
from skiplens.studies.replicates import ReplicateSettings
from skiplens.studies.study import Preset

Data = Literal["cifar10", "cifar100", "imagenet", "digits"]

CLASSES: dict[Data, int] = {"cifar10": 10, "cifar100": 100, "imagenet": 1000}
"""Outputs of the network, which tell the data sets apart also where digits stand in for them."""

LEARNING_RATES = (0.2, 0.1, 0.05, 0.02)
SHOWN: dict[Data, float] = {"cifar10": 0.1, "cifar100": 0.05, "imagenet": 0.05}
"""The learning rates of figure 3: the best ones for the original networks."""


@dataclass(frozen=True)
class ImageTraining(ReplicateSettings):
    """A pre-activation ResNet trained on images; the defaults are those of the paper's CIFAR-10."""

    data: Data = option("cifar10", "what is trained on; digits stand in for others")
    classes: int = option(10, "outputs of the network")
    modified: bool = option(False, "an average pool beside the convolution of each shortcut")
    learning_rate: float = option(0.1, "before the first milestone")
    epochs: int = option(90, "passes through the images")
    milestones: tuple[int, ...] = option((30, 60), "epochs after which the learning rate falls")
    images: int | None = option(None, "training images; none: all")
    test_images: int | None = option(None, "test images; none: all")
    side: int | None = option(None, "pixels a side; none: as they are")
    width: int = option(64, "channels of the first stage")
    batch_size: int = option(128, "images of a step")
    gpu: bool = option(False, "on a GPU: bfloat16, channels last, replayed as a CUDA graph")

    @property
    def of_imagenet(self) -> bool:
        """Whether this is the bottleneck ResNet-50 of ImageNet and its training."""
        return self.data == "imagenet"


@dataclass(frozen=True)
class Sizes:
    """How much of everything a preset does.

    Attributes:
        trials: Pairs of networks with the same first weights, batches and augmentations.
        epochs: Passes through the images; the learning rate falls after each third of them.
        images: Training images; None for all.
        test_images: Test images; None for all.
        side: Pixels a side; None for all.
        width: Channels of the first stage.
        batch_size: Images of a step.
        digits: Whether the embedded digits stand in for the data sets.
        gpu: Whether runs want a GPU.
        learning_rates: Of the runs of figures 4 to 6 and the tables.
    """

    trials: int
    epochs: int = 90
    images: int | None = None
    test_images: int | None = None
    side: int | None = None
    width: int = 64
    batch_size: int = 128
    digits: bool = False
    gpu: bool = False
    learning_rates: tuple[float, ...] = LEARNING_RATES


SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes(2, 2, 64, 40, side=8, width=4, batch_size=32, digits=True),
    "laptop": Sizes(3, 3, 256, 200, side=16, width=8, batch_size=64),
    "paper": Sizes(10, gpu=True),
}

ONE_GPU = Sizes(10, 15, gpu=True, learning_rates=(0.1,))
"""All images and the whole network, a sixth of the epochs: minutes on one GPU."""
