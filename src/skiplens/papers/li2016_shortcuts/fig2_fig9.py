"""Figures 2 and 9: ResNets on CIFAR-10, their norms against depth, and their errors with shortcuts of other lengths."""

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skiplens import zoo
from skiplens.base import Randomness, option
from skiplens.papers import statistics
from skiplens.papers.images import NOT_DONE, Portion, missing, needs, recipe, training_and_test
from skiplens.papers.statistics import Band, Readings, against, decide, over_seeds, stacked, values, whole
from skiplens.papers.study import Item, Judgement, Preset, claim
from skiplens.plots.figure import Figure, Line, Points, Reference, colour, numbers
from skiplens.sweeps.run import Run, unfinished_work
from skiplens.training import Recipe, evaluate
from skiplens.training.batched.side_by_side import train_side_by_side

_NORM_DEPTHS = (20, 32, 44, 56, 110)


class ShortcutTraining(statistics.ReplicateSettings):
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
    """How much of everything a preset does: depths, epochs and runs of each network, first of figure 2, then of 9."""

    norm_depths: tuple[int, ...]
    norm_epochs: int
    norm_runs: int
    error_depths: tuple[int, ...]  # 36 q + 2 suits every shortcut depth
    shortcut_depths: tuple[int, ...]
    error_epochs: int
    error_runs: int
    base: ShortcutTraining  # what all runs share


_TINY = ShortcutTraining(data="digits", images=32, test_images=40, side=8, width=4, batch_size=32)
_SMALL = ShortcutTraining(images=128, test_images=100, side=16, width=4, batch_size=64)

SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes((8, 14, 20), 2, 4, (38, 74), (1, 2, 3, 4), 1, 2, _TINY),
    "laptop": Sizes(_NORM_DEPTHS, 2, 4, (38, 74, 110), (1, 2, 3, 4), 2, 2, _SMALL),
    "paper": Sizes(_NORM_DEPTHS, 10, 8, (38, 110, 434), (1, 2, 3, 4, 6), 30, 8, ShortcutTraining(gpu=True)),
}

FORGETTING = 52  # epochs from which on norms that do not fall with depth refute that they do
SHORTEST = 30  # epochs from which on errors are compared; the paper has 164, which a GPU does not do in hours


def fig2_runs(sizes: Sizes, seed: int) -> list[Run]:
    """Shortcuts over two convolutions, several depths."""
    return _runs(sizes.base, sizes.norm_epochs, sizes.norm_runs, seed, depth=sizes.norm_depths)


def fig9_runs(sizes: Sizes, seed: int) -> list[Run]:
    """Several shortcut depths and depths."""
    axes = {"depth": sizes.error_depths, "shortcut_depth": sizes.shortcut_depths}
    return _runs(sizes.base, sizes.error_epochs, sizes.error_runs, seed, **axes)


def _runs(base: ShortcutTraining, epochs: int, count: int, seed: int, **axes: Any) -> list[Run]:
    milestones = ShortcutTraining().milestones
    if epochs < ShortcutTraining().epochs:  # not the paper's 164 or 200: after one half and three quarters
        milestones = tuple(sorted({max(1, epochs // 2), max(1, 3 * epochs // 4)}))
    base = dataclasses.replace(base, epochs=epochs, milestones=milestones)

    def cost(settings: ShortcutTraining) -> float:
        return settings.epochs * (settings.images or 50_000) * settings.depth * settings.width / 1e6

    found = statistics.replicated(shortcut_training, base, count, seed, cost, **axes)
    return [dataclasses.replace(run, needs=needs(base.gpu), lacks=missing(base.data)) for run in found]


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
    found = train_side_by_side([network], training, [recipe_of(settings)], look=mean_convolution_norm, checkpoint=kept)
    assert found is not None, "nothing stops it"
    return measured(settings, network, test, found.epoch_losses[0], found.looks[0])


def measured(
    settings: ShortcutTraining, network: nn.Module, test: Any, losses: Tensor, norms: Tensor
) -> dict[str, Tensor]:
    """What is read of a trained network and its training."""
    accuracy = evaluate(network, test).accuracy
    assert accuracy is not None, "targets are classes"
    return {
        "norm": norms,
        "epoch_loss": F.pad(losses, (1, 0), value=torch.nan),  # none at the start
        "error": torch.tensor(1 - accuracy, dtype=torch.float64),
        "parameters": torch.tensor(sum(parameter.numel() for parameter in network.parameters())),
        "change_when_halved": change_when_halved(network, test.first(100).inputs),
    }


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
    return recipe(settings, _replicate(settings), learning_rate=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)


def _replicate(settings: ShortcutTraining) -> Randomness:
    return Randomness(settings.seed).child("shortcut training", settings.replicate)


def _convolutions(network: nn.Module) -> list[Tensor]:
    return [module.weight for module in network.modules() if isinstance(module, nn.Conv2d)]


@claim("Section 4.1, figure 2", "decreasing")
def _during(readings: Readings) -> Judgement:
    """The deeper a residual network is, the smaller its average Frobenius norm is during training."""
    return _norms_fall(readings, "averaged over the epochs", lambda norms: norms[..., 1:].mean(-1))


@claim("Section 4.1, figure 2", "decreasing")
def _after(readings: Readings) -> Judgement:
    """The deeper a residual network is, the smaller its average Frobenius norm is when the training ends."""
    return _norms_fall(readings, "after the last epoch", lambda norms: norms[..., -1])


def _norms_fall(readings: Readings, words: str, take: Callable[[Tensor], Tensor]) -> Judgement:
    sentence = (
        f"Mean norm of a network's convolutions {words}, minus that of the next shallower network; the largest "
        "difference."
    )
    problem, readings = _problem(readings), whole(readings, "depth")
    if problem or not readings or len(values(readings, "depth")) < 2:
        return Judgement("not attempted", explanation=f"{sentence} {problem or NOT_DONE}")
    _, norms = against(readings, "norm", "depth")
    found = decide(over_seeds(take(norms).diff(dim=1)), Band(-math.inf, 0.0), sentence)
    # In 26 epochs, 1 / (0.1 · 1e-4 / (1 - 0.9)) steps of 391 an epoch, weight decay forgets the first norms once. These
    # rise with depth: what is left of them speaks against the statement, which so may hold earlier but not fail.
    if readings[0].setting("epochs") < FORGETTING and found.verdict in ("differs", "opposite"):
        problem = f"Only from {FORGETTING} epochs on weight decay has forgotten the first norms, which rise with depth."
        return dataclasses.replace(found, verdict="not attempted", explanation=f"{sentence} {problem}")
    return found


@claim("Section 4.1", "norms measure responses")
def _responses(readings: Readings) -> Judgement:
    """The norms confirm that deeper ResNets have smaller magnitudes of layer responses."""
    readings = whole(readings, "depth")
    if not readings:
        return Judgement("not attempted", explanation=missing("cifar10") or NOT_DONE)
    found = over_seeds(against(readings, "change_when_halved", "depth")[1])
    sentence = (
        "‖f(W/2) - f(W)‖ / ‖f(W)‖, W being all convolutions of a trained network. If norms said how large the layers' "
        "responses are, f would change. Batch norm takes the scale out again: f stays, up to the ε of batch norm, so "
        "smaller norms of deeper networks are set by weight decay and learning rate and say nothing about f."
    )
    return statistics.decide_correction((found, Band(0.25, math.inf)), (found, Band.around(0.0, 0.01)), sentence)


@claim("Section 5.3.2", "the same number")
def _parameters(readings: Readings) -> Judgement:
    """The shortcut depth changes while the total number of parameters is fixed."""
    if not readings:
        return Judgement("not attempted", explanation=missing("cifar10") or NOT_DONE)
    counts = [stacked(readings, "parameters", depth=depth).double() for depth in values(readings, "depth")]
    spread = max(float(count.max() - count.min()) for count in counts)
    sentence = "Largest difference of the numbers of parameters between shortcut depths, over all depths; exact."
    return Judgement("differs" if spread else "reproduced", spread, 0.0, 0.0, sentence)


@claim("Figure 9", "lowest, up to one deviation")
def _best(readings: Readings) -> Judgement:
    """Shortcut depth 2 gives the smallest error."""
    sentence = "Test error with shortcut depth 2 minus that with 1, 3 and 4 at the greatest depth; the largest."
    readings = _with_lengths(readings)
    if problem := _problem(readings, SHORTEST, 110):
        return Judgement("not attempted", explanation=f"{sentence} {problem}")
    errors = _errors(readings, max(values(readings, "depth")), (1, 2, 3, 4))
    one_deviation = float(errors.std(0).square().mean().sqrt())
    differences = errors[:, [1]] - errors[:, [0, 2, 3]]
    return decide(over_seeds(differences), Band.between(-math.inf, 0.0, one_deviation), sentence)


@claim("Section 5.3.2, figure 9", "error falls for 2, rises for others")
def _gain(readings: Readings) -> Judgement:
    """Beyond 400 layers only shortcut depth 2 gains from depth, the others degrade."""
    sentence = (
        "Change of the test error from the last depth below 400 to the first above it: negative with "
        "shortcut depth 2, positive with 1, 3 and 4 (whose sign is turned round); the largest."
    )
    readings = _with_lengths(readings)
    problem = _problem(readings, SHORTEST, 400)
    if not problem and min(values(readings, "depth")) > 400:
        problem = "There are no networks below 400 layers yet."
    if problem:
        return Judgement("not attempted", explanation=f"{sentence} {problem}")
    depths = values(readings, "depth")
    above, below = min(depth for depth in depths if depth > 400), max(depth for depth in depths if depth <= 400)
    gains = _errors(readings, above, (1, 2, 3, 4)) - _errors(readings, below, (1, 2, 3, 4))
    return decide(over_seeds(gains * torch.tensor([-1.0, 1.0, -1.0, -1.0])), Band(-math.inf, 0.0), sentence)


@claim("Figure 9", "higher error")
def _longer(readings: Readings) -> Judgement:
    """Shortcut depths larger than 4 yield worse results."""
    sentence = "Test error with shortcut depth 6 minus that with 2, at every depth; the smallest."
    longer = _with_lengths(readings, (2, 6))
    if problem := _problem(longer or readings, SHORTEST) or ("" if longer else "There are no such networks yet."):
        return Judgement("not attempted", explanation=f"{sentence} {problem}")
    two, six = (against(longer, "error", "depth", shortcut_depth=length)[1] for length in (2, 6))
    return decide(over_seeds(six - two), Band(0.0, math.inf), sentence)


def _errors(readings: Readings, depth: int, shortcut_depths: Sequence[int]) -> Tensor:
    """Test errors at a depth, (replicates, shortcut depths)."""
    columns = [stacked(readings, "error", depth=depth, shortcut_depth=length) for length in shortcut_depths]
    return torch.stack(columns, dim=1)


def _with_lengths(readings: Readings, lengths: tuple[int, ...] = (1, 2, 3, 4)) -> Readings:
    """The readings of these shortcut depths at the depths that have them all, of whole replicates."""
    readings = whole([r for r in readings if r.setting("shortcut_depth") in lengths], "depth", "shortcut_depth")
    found = {(reading.setting("depth"), reading.setting("shortcut_depth")) for reading in readings}
    return [r for r in readings if all((r.setting("depth"), length) in found for length in lengths)]


def _problem(readings: Readings, epochs: int = 1, depth: int = 0) -> str:
    """Why the runs say nothing about the paper's: other images, too short, or too shallow."""
    if not readings:
        return missing("cifar10") or NOT_DONE
    one = readings[0]
    if one.setting("data") != "cifar10" or one.setting("images") is not None:
        return (
            f"This preset trains networks of width {one.setting('width')} on {one.setting('images')} images, to see "
            "that everything runs; use --preset paper on a GPU."
        )
    if one.setting("epochs") < epochs:
        return f"The runs have {one.setting('epochs')} epochs; errors are compared from {epochs} on."
    deepest = max(values(readings, "depth"))
    return "" if deepest >= depth else f"The deepest network has {deepest} layers, more than {depth} are wanted."


FIG2 = (_during, _after, _responses)
FIG9 = (_parameters, _best, _gain, _longer)


def draw_fig2(readings: Readings) -> tuple[Figure, ...]:
    """Mean norm of the convolutions against epochs, one curve a depth."""
    if not readings:
        return ()
    norms = {f"{depth} layers": stacked(readings, "norm", depth=depth) for depth in values(readings, "depth")}
    marks = statistics.curves((range(found.shape[1]), found, name) for name, found in norms.items())
    for power, epoch in enumerate(readings[0].setting("milestones"), 2):
        marks.append(Reference(float(epoch), f"learning rate {0.1**power:.2g}", "x"))
    caption = (
        "Means over runs with one standard deviation; lines mark where the learning rate falls. At the start ‖W‖_F is "
        "√(2 inputs) on average; the stem with its three inputs weighs less in deeper networks."
    )
    words = ("norms", f"Figure 2: average Frobenius norms, {_trained_on(readings)}")
    return (statistics.figure(words, caption, ("epoch", "mean of ‖W‖_F over convolutions"), marks),)


def draw_fig9(readings: Readings) -> tuple[Figure, ...]:
    """Test error against depth, one series a shortcut depth."""
    readings = whole(readings, "depth", "shortcut_depth")
    if not readings:
        return ()
    points, lines = [], []
    for number, length in enumerate(values(readings, "shortcut_depth")):
        depths, errors = against(readings, "error", "depth", shortcut_depth=length)
        mean, spread = numbers(100 * errors.mean(0)), numbers(100 * errors.std(0))
        points.append(Points(numbers(depths), mean, f"shortcut depth {length}", spread))
        lines.append(Line(numbers(depths), mean, colour=colour(number)))
    caption = "Means over runs with one standard deviation; networks of one depth have the same number of parameters."
    words = ("errors", f"Figure 9: test error, {_trained_on(readings)}, {readings[0].setting('epochs')} epochs")
    return (statistics.figure(words, caption, ("depth (weight layers)", "test error (%)"), [*points, *lines]),)


def _trained_on(readings: Readings) -> str:
    """CIFAR-10, or what stands in for it."""
    one = readings[0]
    if one.setting("data") != "cifar10":
        return "digits in place of CIFAR-10"
    return "CIFAR-10" if one.setting("images") is None else f"{one.setting('images')} images of CIFAR-10"


_DEVIATIONS = (
    "Only the paper preset (one GPU) trains the paper's networks, 10 epochs for figure 2 and 30 for figure 9; the rate "
    "falls after one half and three quarters (the paper: 200 and 164 epochs). smoke takes embedded digits, laptop 128 "
    "images of 16×16 pixels, both networks of a quarter of the width for one or two epochs: they show that everything "
    "runs and decide what holds at every size.",
    "As in the public program: Nesterov momentum 0.9, weight decay 1e-4, batches of 128, convolutions from "
    "N(0, 2/(9 outputs)); unlike its stored version every unit begins with batch norm and ReLU, and shortcuts where "
    "the width changes are strided and padded with zeros, so that all shortcut depths have the same parameters.",
    "On a GPU the passes are in bfloat16 with weights in float32.",
)

_ONCE = "The paper trains each network once, here several times."
_DEPTHS = "The paper gives no depths: here 36 q + 2, which all shortcut depths divide."
_FIG2 = "Frobenius norms of CIFAR-10 ResNets during training"
_FIG9 = "CIFAR-10 test error against depth for several shortcut depths"


def items(sizes: Mapping[Preset, Sizes], said: tuple[str, ...] = ()) -> tuple[Item, ...]:
    """Both items, with runs as large as `sizes` says and further deviations."""
    tables = statistics.raw_tables
    runs = (lambda preset, seed: fig2_runs(sizes[preset], seed)), (lambda preset, seed: fig9_runs(sizes[preset], seed))
    return (
        Item("fig2", _FIG2, runs[0], FIG2, draw_fig2, tables, (*_DEVIATIONS, _ONCE, *said)),
        Item("fig9", _FIG9, runs[1], FIG9, draw_fig9, tables, (*_DEVIATIONS, _DEPTHS, *said)),
    )


ITEMS = items(SIZES)
