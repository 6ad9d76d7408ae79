"""One training run, and how large the runs are at each preset."""

import copy
import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skiplens import zoo
from skiplens.base.randomness import Randomness
from skiplens.base.settings import option
from skiplens.papers.images import Portion, missing, needs, training_and_test
from skiplens.papers.statistics import ReplicateSettings, replicated
from skiplens.papers.study import Preset
from skiplens.sweeps.run import Run, unfinished_work
from skiplens.training.callbacks import Callback, Moment, evaluate
from skiplens.training.loop import train
from skiplens.training.recipe import Recipe

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

NORM = "mean norm of the convolutions"

COMPARED_IMAGES = 100
"""On which a network is compared with the one whose convolutions are halved."""


def shortcut_training(settings: ShortcutTraining) -> dict[str, Tensor]:
    """Mean norm of the convolutions at the start and after each epoch, loss of each epoch, test error, parameters.

    `change_when_halved` is how much the trained network changes, relative to itself, when all its convolutions are
    halved.
    """
    device = "cuda" if settings.gpu else "cpu"
    portion = Portion(settings.images, settings.test_images, settings.side)
    training, test = training_and_test(settings.data, portion, settings.batch_size, device)
    network = network_of(settings).to(device, torch.float32)
    kept = unfinished_work() if settings.gpu else None  # the others take seconds
    history = train(network, training, recipe_of(settings), callbacks=[NormOfEachEpoch()], checkpoint=kept)
    accuracy = evaluate(network, test).accuracy
    assert accuracy is not None, "targets are classes"
    return {
        "norm": _from_the_start(history.recorded[NORM], settings.epochs),
        "epoch_loss": _from_the_start(F.pad(history.epoch_losses, (1, 0), value=torch.nan), settings.epochs),
        "error": torch.tensor(1 - accuracy, dtype=torch.float64),
        "parameters": torch.tensor(sum(parameter.numel() for parameter in network.parameters())),
        "change_when_halved": change_when_halved(network, test.first(COMPARED_IMAGES).inputs),
    }


class NormOfEachEpoch(Callback):
    """Records the mean Frobenius norm of the convolutions at the start and after each epoch."""

    def before_step(self, moment: Moment) -> None:
        """Record the start."""
        if moment.step == 0:
            moment.record(NORM, mean_convolution_norm(moment.model))

    def after_step(self, moment: Moment) -> None:
        """Record the end of an epoch."""
        if moment.step % moment.steps_per_epoch == 0:
            moment.record(NORM, mean_convolution_norm(moment.model))


def mean_convolution_norm(network: nn.Module) -> float:
    """The mean of ‖W‖_F over the convolutions."""
    return float(torch.stack([weight.detach().norm() for weight in _convolutions(network)]).mean())


@torch.no_grad()
def change_when_halved(network: nn.Module, images: Tensor) -> Tensor:
    """‖f(W/2) - f(W)‖ / ‖f(W)‖ on a batch, whose statistics the batch norms use, W being all convolutions."""
    halved = copy.deepcopy(network)
    for weight in _convolutions(halved):
        weight.mul_(0.5)
    before, after = (model.train()(images).double() for model in (copy.deepcopy(network), halved))
    return ((after - before).norm() / before.norm()).cpu()


def network_of(settings: ShortcutTraining) -> nn.Module:
    """The network; those of a replicate and depth have the same weights at every shortcut depth."""
    shape = {"depth": settings.depth, "shortcut_depth": settings.shortcut_depth, "width": settings.width}
    return zoo.build("preact_resnet", _replicate(settings), **shape)


def recipe_of(settings: ShortcutTraining) -> Recipe:
    """The training of the public program that the paper uses."""
    return Recipe(
        learning_rate=0.1,
        momentum=0.9,
        nesterov=True,
        weight_decay=1e-4,
        batch_size=settings.batch_size,
        epochs=settings.epochs,
        milestones=settings.milestones,
        augmentation="crop_flip",
        precision="bfloat16" if settings.gpu else "full",
        channels_last=settings.gpu,
        cuda_graph=settings.gpu,
        seed=_replicate(settings).child("training").entropy(),
    )


def _replicate(settings: ShortcutTraining) -> Randomness:
    return Randomness(settings.seed).child("shortcut training", settings.replicate)


def _convolutions(network: nn.Module) -> list[Tensor]:
    return [module.weight for module in network.modules() if isinstance(module, nn.Conv2d)]


def _from_the_start(values: Tensor, epochs: int) -> Tensor:
    """One value for the start and one for each epoch; NaN where a diverged run has none."""
    return F.pad(values.double(), (0, epochs + 1 - len(values)), value=torch.nan)


_MEASURE = f"{__name__}:shortcut_training"


def fig2_runs(sizes: Sizes, seed: int) -> list[Run]:
    """Shortcuts over two convolutions, several depths."""
    return _runs(sizes.base, sizes.norm_epochs, sizes.norm_runs, seed, depth=sizes.norm_depths)


def fig9_runs(sizes: Sizes, seed: int) -> list[Run]:
    """Several shortcut depths and depths."""
    axes = {"depth": sizes.error_depths, "shortcut_depth": sizes.shortcut_depths}
    return _runs(sizes.base, sizes.error_epochs, sizes.error_runs, seed, **axes)


def _runs(base: ShortcutTraining, epochs: int, count: int, seed: int, **axes: Any) -> list[Run]:
    if missing(base.data):
        return []
    base = dataclasses.replace(base, epochs=epochs, milestones=_milestones(epochs))
    found = replicated(_MEASURE, base, count, seed, _cost, **axes)
    return [dataclasses.replace(run, needs=needs(base.gpu)) for run in found]


def _milestones(epochs: int) -> tuple[int, ...]:
    """Epochs 81 and 122 of the paper's 164 and 200; of fewer, one half and three quarters."""
    if epochs >= ShortcutTraining().epochs:
        return ShortcutTraining().milestones
    return tuple(sorted({max(1, epochs // 2), max(1, 3 * epochs // 4)}))


def _cost(settings: ShortcutTraining) -> float:
    return settings.epochs * (settings.images or 50_000) * settings.depth * settings.width / 1e6
