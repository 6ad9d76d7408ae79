"""What a run measures: norms of the convolutions and losses along training, test error, parameters."""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skiplens.core.randomness import Randomness
from skiplens.residual import zoo
from skiplens.studies.images import Portion, training_and_test
from skiplens.studies.li2016_shortcuts.images.settings import ShortcutTraining
from skiplens.sweeps import unfinished_work
from skiplens.training import Callback, Moment, Recipe, evaluate, train

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
