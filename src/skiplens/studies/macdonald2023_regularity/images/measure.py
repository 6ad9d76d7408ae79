"""What a run measures: the loss of every epoch and the test accuracy."""

import torch
from torch import nn

from skiplens.core.axes import Tensor
from skiplens.core.randomness import Randomness
from skiplens.residual import zoo
from skiplens.studies.images import Portion, training_and_test
from skiplens.studies.macdonald2023_regularity.images.settings import ImageTraining
from skiplens.sweeps import unfinished_work
from skiplens.training import Recipe, TrainingHistory, evaluate, train

IMAGENET_SIDE = 256
"""Of the centred square of an image; random parts of it are scaled to 224."""
TEST_BATCH = 1000
"""The authors measure accuracy with the statistics of test batches of this size."""


def image_training(settings: ImageTraining) -> dict[str, Tensor]:
    """Mean loss of each epoch (NaN from where it diverged), and test accuracy with running and batch statistics."""
    device = "cuda" if settings.gpu else "cpu"
    training, test = training_and_test(settings.data, _portion(settings), settings.batch_size, device)
    network = network_of(settings).to(device, torch.float32)
    kept = unfinished_work() if settings.gpu else None  # the others take seconds
    history = train(network, training, recipe_of(settings), checkpoint=kept)
    return {
        "epoch_loss": _losses(history, settings.epochs),
        "accuracy": _accuracy(network, test, "running"),
        "accuracy_batch_statistics": _accuracy(network, test, "batch"),
    }


def network_of(settings: ImageTraining) -> nn.Module:
    """The network; those of a trial have the same weights, whatever their shortcuts."""
    name = f"preact_resnet{50 if settings.of_imagenet else 18}{'_avgskip' if settings.modified else ''}"
    stem = "imagenet" if settings.of_imagenet else "cifar"
    return zoo.build(name, trial(settings), classes=settings.classes, width=settings.width, stem=stem)


def recipe_of(settings: ImageTraining) -> Recipe:
    """The training of a trial, which draws the same for both networks.

    For CIFAR as in the authors' program: plain gradient descent without momentum and weight decay (erratum X2).
    """
    shared = Recipe(
        learning_rate=settings.learning_rate,
        batch_size=settings.batch_size,
        epochs=settings.epochs,
        milestones=settings.milestones,
        milestone_factor=0.2,
        augmentation="crop_flip",
        precision="bfloat16" if settings.gpu else "full",
        channels_last=settings.gpu,
        cuda_graph=settings.gpu,
        seed=trial(settings).child("training").entropy(),
    )
    if not settings.of_imagenet:
        return shared
    other = {"batch_size": None, "milestone_factor": 0.1, "momentum": 0.9, "weight_decay": 1e-4}
    return Recipe.from_json({**shared.to_json(), **other, "augmentation": "resized_crop_flip"})


def trial(settings: ImageTraining) -> Randomness:
    """Where the draws of a trial come from: the same for both networks and all learning rates."""
    return Randomness(settings.seed).child("image training", settings.replicate)


def _portion(settings: ImageTraining) -> Portion:
    side = (settings.side or IMAGENET_SIDE) if settings.of_imagenet else settings.side
    return Portion(settings.images, settings.test_images, side)


def _losses(history: TrainingHistory, epochs: int) -> Tensor:
    losses = torch.full((epochs,), torch.nan, dtype=torch.float64)
    found = history.epoch_losses
    losses[: len(found)] = found
    return losses


def _accuracy(network: nn.Module, test: object, statistics: str) -> Tensor:
    found = evaluate(network, test, batch_size=TEST_BATCH, statistics=statistics)  # type: ignore[arg-type]  # a choice
    return torch.tensor(found.accuracy, dtype=torch.float64)
