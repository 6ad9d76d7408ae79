"""Training pairs of ResNets on images for figures 3 to 6 and tables 1 to 3, and the numbers taken from a run."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skiplens import zoo
from skiplens.base import Randomness, option
from skiplens.papers.images import NOT_DONE, Portion, missing, needs, recipe, training_and_test
from skiplens.papers.statistics import Band, Interval, Readings, ReplicateSettings, decide, over_seeds, replicated
from skiplens.papers.study import Judgement, Preset
from skiplens.readings.reading import Measurement
from skiplens.sweeps.run import Run, unfinished_work
from skiplens.training import Recipe, evaluate, train

Data = Literal["cifar10", "cifar100", "imagenet", "digits"]
CLASSES: dict[Data, int] = {"cifar10": 10, "cifar100": 100, "imagenet": 1000}
"""Outputs of the network, which tell the data sets apart also where digits stand in for them."""

LEARNING_RATES = (0.2, 0.1, 0.05, 0.02)
SHOWN: dict[Data, float] = {"cifar10": 0.1, "cifar100": 0.05, "imagenet": 0.05}
"""The learning rates of figure 3: the best ones for the original networks."""


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
    """How much of everything a preset does."""

    trials: int  # pairs of networks with the same first weights, batches and augmentations
    training: ImageTraining = field(default_factory=ImageTraining)  # the rate falls after each third of the epochs
    digits: bool = False  # whether the embedded digits stand in for the data sets
    learning_rates: tuple[float, ...] = LEARNING_RATES  # of the runs of figures 4 to 6 and the tables
    whole_trials: int = 0  # pairs on CIFAR-10 at the learning rate of figure 3 with all epochs of the paper
    unstable_trials: int = 0  # original networks on CIFAR-10 at 0.2, of which some diverge


SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes(2, ImageTraining(epochs=2, images=64, test_images=40, side=8, width=4, batch_size=32), digits=True),
    "laptop": Sizes(3, ImageTraining(epochs=3, images=256, test_images=200, side=16, width=8, batch_size=64)),
    "paper": Sizes(12, ImageTraining(epochs=15, gpu=True), whole_trials=5, unstable_trials=40),
}

IMAGENET_BATCH, IMAGENET_TRIALS = 256, 3
IMAGENET_SIDE = 256  # of the centred square of an image; random parts of it are scaled to 224
SMALL_IMAGENET_SIDE = 37
"""Where images are small: random parts have 7/8 of the side, 32 pixels, which can be halved five times."""


def compared(data: Data, sizes: Sizes, seed: int, learning_rates: Iterable[float]) -> list[Run]:
    """Original and modified networks on one data set, and what `sizes` adds to them on CIFAR-10."""
    stands_in = sizes.digits and data != "imagenet"
    base, of_imagenet, whole = sizes.training, data == "imagenet", ImageTraining().epochs
    base = dataclasses.replace(base, epochs=whole if base.gpu and data != "cifar10" else base.epochs)
    third = max(1, base.epochs // 3)
    base = dataclasses.replace(
        base,
        data="digits" if stands_in else data,
        classes=CLASSES[data],
        milestones=tuple(sorted({third, 2 * third})),
        side=SMALL_IMAGENET_SIDE if of_imagenet and base.side else base.side,
        batch_size=IMAGENET_BATCH if of_imagenet and base.images is None else base.batch_size,
    )
    trials = min(sizes.trials, IMAGENET_TRIALS) if of_imagenet else sizes.trials
    rates, both = tuple(learning_rates), (False, True)
    found = replicated(image_training, base, trials, seed, learning_rate=rates, modified=both)
    if data == "cifar10" and SHOWN[data] in rates:
        longer = dataclasses.replace(base, epochs=whole, milestones=ImageTraining().milestones)
        shown = (SHOWN[data],)
        found += replicated(image_training, longer, sizes.whole_trials, seed, learning_rate=shown, modified=both)
    if data == "cifar10" and 0.2 in rates:  # pairs are there already
        found += replicated(image_training, base, sizes.unstable_trials, seed, learning_rate=(0.2,), modified=(False,))
    lacks = "" if stands_in else missing(data)

    def planned(run: Run) -> Run:
        cost = getattr(run.settings, "epochs", 1) * (base.images or 50_000) * base.width**2 / 1e6
        return dataclasses.replace(run, needs=needs(base.gpu), cost=cost, lacks=lacks)

    return list({run.key: planned(run) for run in found}.values())


def all_rates(data: Data, sizes: Sizes, seed: int) -> list[Run]:
    """At all learning rates of the preset."""
    return compared(data, sizes, seed, sizes.learning_rates)


def shown_rates(sizes: Sizes, seed: int) -> list[Run]:
    """All data sets, each at the learning rate of figure 3."""
    return [run for data, rate in SHOWN.items() for run in compared(data, sizes, seed, (rate,))]


def image_training(settings: ImageTraining) -> dict[str, Tensor]:
    """Mean loss of each epoch (NaN from where it diverged), and test accuracy with running and batch statistics."""
    device = "cuda" if settings.gpu else "cpu"
    side = settings.side or (IMAGENET_SIDE if settings.of_imagenet else None)
    portion = Portion(settings.images, settings.test_images, side)
    training, test = training_and_test(settings.data, portion, settings.batch_size, device)
    network = network_of(settings).to(device, torch.float32)
    kept = unfinished_work() if settings.gpu else None  # the others take seconds
    history = train(network, training, recipe_of(settings), checkpoint=kept)
    return measured(settings, network, test, history.epoch_losses)


def measured(
    settings: ImageTraining, network: nn.Module, test: Any, losses: Tensor, looks: Tensor | None = None
) -> dict[str, Tensor]:
    """What is read of a trained network and its training."""
    running, batch = (  # the authors measure accuracy with the statistics of test batches of 1,000
        evaluate(network, test, batch_size=1000, statistics=statistics).accuracy for statistics in ("running", "batch")
    )
    return {
        "epoch_loss": F.pad(losses.double(), (0, settings.epochs - len(losses)), value=math.nan),
        "accuracy": torch.tensor(running, dtype=torch.float64),
        "accuracy_batch_statistics": torch.tensor(batch, dtype=torch.float64),
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
    shared = recipe(settings, trial(settings), learning_rate=settings.learning_rate, milestone_factor=0.2)
    if not settings.of_imagenet:
        return shared
    other = {"batch_size": None, "milestone_factor": 0.1, "momentum": 0.9, "weight_decay": 1e-4}
    return Recipe.from_json({**shared.to_json(), **other, "augmentation": "resized_crop_flip"})


def trial(settings: ImageTraining) -> Randomness:
    """Where the draws of a trial come from: the same for both networks and all learning rates."""
    return Randomness(settings.seed).child("image training", settings.replicate)


Number = Callable[[Measurement], float]
FEW = 2  # fewer pairs than this have no interval
_LOGARITHM_OF_NOTHING = 1e-12


def of_data(readings: Readings, data: Data, **settings: object) -> list[Measurement]:
    """The readings of a data set, or of the digits that stand in for it, whose settings have the given values."""
    wanted = {"classes": CLASSES[data], **settings}
    return [reading for reading in readings if all(reading.setting(name) == value for name, value in wanted.items())]


def of_length(readings: Sequence[Measurement], all_epochs: bool) -> list[Measurement]:
    """The runs of the most epochs that there are, or of the fewest."""
    lengths = {reading.setting("epochs") for reading in readings}
    wanted = (max if all_epochs else min)(lengths, default=0)
    return [reading for reading in readings if reading.setting("epochs") == wanted]


def final_loss(reading: Measurement) -> float:
    """The mean loss of the last epoch; NaN where the run diverged."""
    return float(reading["epoch_loss"][-1])


def log_final_loss(reading: Measurement) -> float:
    """Its logarithm."""
    return math.log(max(final_loss(reading), _LOGARITHM_OF_NOTHING))


def mean_log_loss(reading: Measurement) -> float:
    """The mean over epochs of the logarithm of the loss: how high the training curve lies."""
    return float(reading["epoch_loss"].clamp(min=_LOGARITHM_OF_NOTHING).log().mean())


def accuracy(reading: Measurement) -> float:
    """Test accuracy as the authors measured it: with the statistics of the test batches."""
    return float(reading["accuracy_batch_statistics"])


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation, the paper's, of the runs that ended; NaN where none did."""
    ended = torch.tensor(values, dtype=torch.float64)
    ended = ended[torch.isfinite(ended)]
    return float(ended.mean()), float((ended - ended.mean()).square().mean().sqrt())


def differences(readings: Readings, number: Number) -> Tensor:
    """Modified minus original in every trial; a trial in which one of the two diverged is left out."""
    by_trial = {
        modified: {r.setting("replicate"): number(r) for r in readings if r.setting("modified") == modified}
        for modified in (False, True)
    }
    trials = sorted(by_trial[False].keys() & by_trial[True].keys())
    found = torch.tensor([by_trial[True][t] - by_trial[False][t] for t in trials], dtype=torch.float64)
    return found[torch.isfinite(found)]


def not_comparable(readings: Readings, data: Data, all_epochs: bool) -> str:
    """Why these runs say nothing about the paper's, which may have to be of `all_epochs`; nothing if they do."""
    if not readings:
        return missing(data) or NOT_DONE
    one = readings[0]
    if one.setting("data") != data:
        return f"This preset trains on embedded digits, not on {data}; use --preset paper on a GPU."
    if one.setting("images") is not None or one.setting("width") != ImageTraining().width:
        return (
            f"This preset trains a network of width {one.setting('width')} on {one.setting('images')} images, to see "
            "that everything runs; use --preset paper on a GPU."
        )
    if all_epochs and one.setting("epochs") != ImageTraining().epochs:
        return f"The runs have {one.setting('epochs')} epochs instead of {ImageTraining().epochs}."
    return ""


def judged(
    values: Tensor, band: Band, sentence: str, problem: str, over: Callable[[Tensor], Interval] = over_seeds
) -> Judgement:
    """The decision on one number, or one row, a trial; where there is a problem, that."""
    if problem or len(values) < FEW:
        return Judgement("not attempted", explanation=f"{sentence} {problem or 'Too few trials ended.'}")
    return decide(over(values), band, sentence)
