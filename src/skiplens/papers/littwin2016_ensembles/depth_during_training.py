"""Depth during training: does the ensemble of a real network get deeper as it learns?"""

import math
from collections import OrderedDict
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from skiplens import zoo
from skiplens.base import Float, Randomness, option
from skiplens.papers import statistics
from skiplens.papers.images import Portion, missing, training_and_test
from skiplens.papers.littwin2016_ensembles.common import NEGATIVE, POSITIVE, REPLICATES, SIZES, looked_at
from skiplens.papers.statistics import Band, Readings, chosen, curve, decide, over_seeds, raw_tables, stacked, values
from skiplens.papers.study import Item, Judgement, Preset, claim, claims
from skiplens.plots.figure import Figure, Mark
from skiplens.report.during_training import DepthHistory, MeasureAlong
from skiplens.report.during_training.depth import DepthMoment, DepthOptions
from skiplens.sweeps.run import Needs, Run
from skiplens.training import Recipe, evaluate
from skiplens.zoo.layers import Residual, convolution, linear
from skiplens.zoo.weight_laws import fill_weights_, he_weights

BATCH = 128
PROBE = 64
CLASSES = 10
_CENTRAL = "As training goes on the ensemble becomes deeper and deeper"


class Images(statistics.ReplicateSettings):
    """Training on images, with the path spectrum of the logits (depth_during_training)."""

    network: Literal["conv", "dense"] = option("conv", "conv or dense layers")
    normalised: bool = option(True, "with batch norm; without it branches start small")
    images: str = option("digits", "data set: digits (embedded), mnist or cifar10")
    training: int = option(1700, "images to train on")
    test: int = option(300, "images to look at and to test with")
    side: int | None = option(16, "pixels a side; none: as they are")
    blocks: int = option(6, "residual blocks")
    width: int = option(8, "channels, or units of a dense network")
    looks: tuple[int, ...] = option((0, 50, 100, 200), "steps at which the network is looked at")
    device: Literal["cpu", "cuda"] = option("cpu", "where it is trained")


def networks(preset: Preset) -> list[Images]:
    """The networks whose depth is followed."""
    if preset != "paper":
        dense = Images(network="dense", blocks=9, width=64)
        return [Images(), dense, replace(dense, normalised=False)]
    whole = {"training": 10_000, "test": 1000, "side": None, "looks": (0, 125, 250, 375, 500), "device": "cuda"}
    return [
        Images.from_json({**whole, "images": images, "network": network, **size, "normalised": normalised})
        for images in ("mnist", "cifar10")
        for network, size in (("conv", {"blocks": 18, "width": 32}), ("dense", {"blocks": 9, "width": 128}))
        for normalised in (True, False)
    ]


def runs(preset: Preset, seed: int) -> list[Run]:
    """Networks on images; none where the data are not at hand, and the claims say so."""
    sizes, found = SIZES[preset], list[Run]()
    for network in networks(preset):
        if missing(network.images):
            continue
        shorter = replace(network, looks=sizes.looks(network.looks))
        needs = Needs(gpus=1 if network.device == "cuda" else 0)
        of_network = statistics.replicated(images, shorter, sizes.varied, seed, cost=4 * max(shorter.looks))
        found += [replace(run, needs=needs) for run in of_network]
    return found


def images(settings: Images) -> dict[str, Tensor]:
    """At each look: energies of the logits by branches passed, coherent depth, mean scale; accuracy at the end."""
    randomness = Randomness(settings.seed).child(settings.key())
    portion = Portion(settings.training, settings.test, settings.side)
    training, test = training_and_test(settings.images, portion, BATCH, settings.device)
    network = image_network(settings, tuple(training.inputs.shape[1:]), randomness.child("weights")).to(settings.device)
    recipe = Recipe(
        learning_rate=0.05 if settings.normalised else 0.03 / settings.blocks,
        momentum=0.9,
        batch_size=BATCH // 2,
        steps=max(settings.looks),
        schedule="cosine",
        seed=randomness.entropy() % 2**31,
    )
    look = DepthMoment(test.first(PROBE), recipe.loss, recipe.learning_rate, DepthOptions(forces=False))
    history = DepthHistory.joined(looked_at(network, training, recipe, MeasureAlong(look, at_steps=settings.looks)))
    return {
        "step": torch.tensor(settings.looks),
        "mean_depth": history.mean_depth,
        "coherent_depth": history.coherent_depth,
        "mean_scale": history.scales.mean(1),
        "loss": history.losses,
        "accuracy": torch.tensor(evaluate(network, test).accuracy, dtype=torch.float64),
        "share": history.distribution,
    }


def image_network(settings: Images, shape: tuple[int, int, int], randomness: Randomness) -> nn.Module:
    """The network that the settings name, for images of `shape`, in float32.

    Scales of batch norm start at 1; without batch norm the weights of branches start at He's over the number of blocks.
    """
    if settings.network == "dense":
        network = _dense(settings, math.prod(shape), randomness)
    else:
        network = _conv(settings, shape[0], randomness)
    if not settings.normalised:
        with torch.no_grad():
            for parameter in network.get_submodule("blocks").parameters():
                parameter.div_(settings.blocks)
    return (nn.Sequential(nn.Flatten(), network) if settings.network == "dense" else network).float()


def _dense(settings: Images, inputs: int, randomness: Randomness) -> nn.Module:
    scaling = {"scaling": "per_unit", "scale_per_unit": True} if settings.normalised else {}
    sizes = {"depth": settings.blocks + 1, "width": settings.width, "input_features": inputs, "classes": CLASSES}
    return zoo.build("ensemble_resnet", randomness, **sizes, weight_scale=2**0.5, output_scale=2**0.5, **scaling)


def _conv(settings: Images, channels: int, randomness: Randomness) -> nn.Module:
    """Blocks x + R(Wx), with batch norm behind the ReLU as in equation 20."""
    width = settings.width

    def branch() -> nn.Sequential:
        norm = [nn.BatchNorm2d(width)] if settings.normalised else []
        return nn.Sequential(convolution(width, width, 3), nn.ReLU(), *norm)

    stem = nn.Sequential(convolution(channels, width, 3), nn.ReLU())
    blocks = nn.Sequential(*(Residual(branch()) for _ in range(settings.blocks)))
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), linear(width, CLASSES, bias=True))
    network = nn.Sequential(OrderedDict(stem=stem, blocks=blocks, head=head))
    fill_weights_(network, he_weights, randomness)
    return network


def depths(readings: Readings, network: str, normalised: bool) -> list[Float[Tensor, "replicates looks"]]:
    """The mean depth at each look, for each data set on which the network was trained."""
    kind = {"network": network, "normalised": normalised}
    names = values(readings, "images", "images", **kind)
    return [stacked(readings, "mean_depth", "images", images=name, **kind) for name in names]


def judge_deeper(readings: Readings, network: str, normalised: bool) -> Judgement:
    """Whether the mean depth grows."""
    if not readings:
        return _no_data()
    sentence = _sentence(readings, network, normalised)
    if network == "conv":
        sentence += " This is said of the networks measured here only: other small conv nets got shallower "
        sentence += "(page of the errata)."
    return decide(over_seeds(_changes(readings, network, normalised)), POSITIVE, sentence)


@claim("Abstract", "> 0")
def _dense_batch_norm(readings: Readings) -> Judgement:
    """As training goes on the ensemble becomes deeper and deeper (dense net, batch norm)."""
    if not readings:
        return _no_data()
    change = over_seeds(_changes(readings, "dense", True))
    corrected = " Tested in place of a printed statement that fails: these networks get shallower."
    return statistics.decide_correction(
        (change, POSITIVE), (change, NEGATIVE), _sentence(readings, "dense", True) + corrected
    )


@claim("Abstract", "< 0.5")
def _initially_shallow(readings: Readings) -> Judgement:
    """Initially the ensemble is mostly at depths lower than half the network's depth."""
    if not readings:
        return _no_data()
    columns = []
    for network, normalised in sorted({(one.setting("network"), one.setting("normalised")) for one in readings}):
        blocks = chosen(readings, "images", network=network, normalised=normalised)[0].setting("blocks")
        columns += [depth[:, 0] / blocks for depth in depths(readings, network, normalised)]
    sentence = "Largest mean depth at the start over the number of blocks, all networks."
    return decide(over_seeds(torch.stack(columns, dim=1)), Band(-math.inf, 0.5), sentence)


def _no_data() -> Judgement:
    wanted = (missing(name) for name in ("mnist", "cifar10"))
    return Judgement("not attempted", explanation=" ".join(f"{sentence}." for sentence in wanted if sentence))


def _changes(readings: Readings, network: str, normalised: bool) -> Float[Tensor, "replicates sets"]:
    return torch.stack([depth[:, -1] - depth[:, 0] for depth in depths(readings, network, normalised)], dim=1)


def _sentence(readings: Readings, network: str, normalised: bool) -> str:
    kind = {"network": network, "normalised": normalised}
    reading = chosen(readings, "images", **kind)[0]
    accuracy = float(stacked(readings, "accuracy", "images", **kind).mean())
    found = torch.cat([depth[:, [0, -1]] for depth in depths(readings, network, normalised)]).mean(0)
    return (
        f"Change of the mean number of branches (of {reading.setting('blocks')}) on the way of the logits; from "
        f"{float(found[0]):.2f} to {float(found[1]):.2f} on average, test accuracy {accuracy:.2f}."
    )


_CONV, _PLAIN = claims(
    judge_deeper,
    ("conv_batch_norm", f"{_CENTRAL} (conv net, batch norm).", "Abstract", "> 0", "conv", True),
    ("dense_plain", f"{_CENTRAL} (dense net, no batch norm, small branches).", "Abstract", "> 0", "dense", False),
)
CLAIMS = (_initially_shallow, _CONV, _dense_batch_norm, _PLAIN)


def figures(readings: Readings) -> tuple[Figure, ...]:
    """Depth against steps for all networks, then the spectra of each; none where there were no data."""
    depths: list[Mark] = []
    spectra: list[Figure] = []
    kinds = dict.fromkeys(tuple(map(reading.setting, ("images", "network", "normalised"))) for reading in readings)
    for index, (images, network, normalised) in enumerate(kinds):
        found = chosen(readings, "images", images=images, network=network, normalised=normalised)
        name = f"{network}, {'batch norm' if normalised else 'no batch norm'}, {images}"
        depths += curve(found[0]["step"], stacked(found, "mean_depth"), name, index)
        spectra.append(_spectrum(found, f"{network}_{'scaled' if normalised else 'plain'}_{images}", name))
    words = ("depth", "Mean depth during training")
    caption = (
        "How many branches the energy of the logits passes on average; means over seeds with standard "
        "deviations. The conv net gets deeper, the dense one with batch norm shallower."
    )
    depth = statistics.figure(words, caption, ("steps", "mean depth (branches)"), depths)
    return (depth, *spectra) if spectra else ()


def _spectrum(readings: Readings, kind: str, name: str) -> Figure:
    shares, steps = stacked(readings, "share"), readings[0]["step"]
    numbers = range(shares.shape[2])
    return statistics.figure(
        (f"spectrum_{kind}", f"Path spectrum before and after training: {name}"),
        "Share of the energy of the logits that passes so many branches; means and deviations over seeds.",
        ("branches on the path", "share of the energy"),
        statistics.curves((numbers, shares[:, look], f"step {int(steps[look])}") for look in (0, -1)),
    )


_DEVIATIONS = (
    "The paper shows no spectra of trained networks. Here: identity blocks x + λR(Wx)/σ on 1,700 of the embedded MNIST "
    "digits at 16×16 pixels, looked at on 64 others, 200 steps of SGD with momentum; six conv blocks of 8 channels, "
    "nine dense ones of 64 units. The paper preset takes 10,000 whole images of MNIST and CIFAR-10 (`skiplens data get "
    "mnist`, `skiplens data get cifar10`) and needs a GPU.",
    REPLICATES,
)

_TITLE = "path spectra of networks as they train"
ITEMS = (Item("depth_during_training", _TITLE, runs, CLAIMS, figures, raw_tables, _DEVIATIONS),)
