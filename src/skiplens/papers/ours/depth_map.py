"""When does training make a residual network deeper? Where its trunk alone, stem and head, cannot learn the task.

Branches that are normalised keep their size while the trunk grows as it learns. So a trunk that can do the task takes
the signal over and the network gets shallower; one that cannot leaves the learning to the branches. What the trunk can
do is changed without touching a block: by the head (a mean over positions, or all of them), or by freezing the stem.
"""

import math
from collections import OrderedDict
from typing import Any, Literal

import torch
from torch import Tensor, nn

from skiplens.base import Float, Randomness, option
from skiplens.graph.batch import Batch
from skiplens.papers import statistics
from skiplens.papers.images import DIGITS, Portion, training_and_test
from skiplens.papers.statistics import Band, Readings, decide, mean_points, over_seeds, replicated, slope, stacked
from skiplens.papers.study import Item, Judgement, Preset, claim, claims
from skiplens.plots.figure import Bars, Figure
from skiplens.report.during_training.depth import DepthOptions, depth_during_training
from skiplens.sweeps.run import Run
from skiplens.training import Recipe, train
from skiplens.zoo.layers import Residual, convolution, linear
from skiplens.zoo.weight_laws import fill_weights_, he_weights

SIDE, COLOURS, CLASSES, PROBE = 16, 3, 10, 64
BODIES = ("pooled", "flattened", "dense")
GROWS, FALLS = Band(0.0, math.inf), Band(-math.inf, 0.0)


class Learner(statistics.ReplicateSettings):
    """A network of identity blocks x + N(R(Wx)) that learns digits, and what its trunk may do."""

    body: Literal["pooled", "flattened", "dense"] = option("pooled", "convolutions under a mean over positions or all")
    normalised: bool = option(True, "batch norm N ends a branch; without it branches start small")
    frozen: bool = option(False, "the stem keeps the weights it starts with")
    blocks: int = option(6, "residual blocks; none: the trunk alone")
    widening: int = option(1, "times the usual width, 8 channels or 64 units")
    head: float = option(1.0, "the last layer starts so many times as large as He's law draws it")
    parity: bool = option(False, "only whether a digit is odd is asked for")
    steps: int = option(200, "steps of the training")


def learnt(settings: Learner) -> dict[str, Tensor]:
    """Mean depth of the logits before and after training (none of a trunk alone), and the last training loss."""
    asked, probe = (_asked(part, settings) for part in training_and_test(DIGITS, Portion(1700, 300, SIDE), 64))
    shared = Randomness(settings.seed).child("learner", settings.replicate)  # by all settings of a replicate
    network = network_of(settings, shared.child("weights"))
    rates: dict[str, Any] = {"learning_rate": 0.02, "momentum": 0.9, "schedule": "cosine"}
    recipe = Recipe(**rates, batch_size=64, steps=settings.steps, seed=shared.entropy() % 2**31)
    if not settings.blocks:
        return {"loss": train(network, asked, recipe).losses[-20:].mean().double()}
    options = DepthOptions(every=settings.steps, samples=PROBE, forces=False)
    history = depth_during_training(network, asked, recipe, probe=probe.first(PROBE), **options.to_json())
    return {"depth": history.mean_depth[[0, -1]], "loss": history.losses[-1]}


def _asked(images: Batch, settings: Learner) -> Batch:
    return Batch(images.inputs, images.targets % 2) if settings.parity else images


def network_of(settings: Learner, randomness: Randomness) -> nn.Module:
    """Stem, blocks of one width and head; blocks of one place start alike in all networks of a replicate."""
    dense, width = settings.body == "dense", settings.widening * (64 if settings.body == "dense" else 8)
    places = 1 if settings.body == "pooled" else (SIDE // 2) ** 2

    def branch() -> nn.Sequential:
        layer = linear(width, width) if dense else convolution(width, width, 3)
        norm = [nn.BatchNorm1d(width) if dense else nn.BatchNorm2d(width)] if settings.normalised else []
        return nn.Sequential(layer, nn.ReLU(), *norm)

    if dense:
        stem = nn.Sequential(nn.Flatten(), linear(COLOURS * SIDE**2, width), nn.ReLU())
        head = nn.Sequential(linear(width, CLASSES, bias=True))
    else:
        stem = nn.Sequential(convolution(COLOURS, width, 3, stride=2), nn.ReLU())
        pool = [nn.AdaptiveAvgPool2d(1)] if settings.body == "pooled" else []
        head = nn.Sequential(*pool, nn.Flatten(), linear(width * places, CLASSES, bias=True))
    blocks = nn.Sequential(*(Residual(branch()) for _ in range(settings.blocks)))
    network = nn.Sequential(OrderedDict(stem=stem, blocks=blocks, head=head)).float()
    fill_weights_(network, he_weights, randomness)
    with torch.no_grad():
        head[-1].weight.mul_(settings.head)  # type: ignore[operator]  # a linear layer
        for parameter in () if settings.normalised else blocks.parameters():
            parameter.div_(settings.blocks)
    stem.requires_grad_(not settings.frozen)
    return network


VARIED: dict[str, dict[str, Any]] = {
    "usual": {},
    "frozen stem": {"frozen": True},
    "no norm": {"normalised": False},
    "twice as wide": {"widening": 2},
    "small head": {"head": 0.1},
    "large head": {"head": 10.0},
    "odd or even": {"parity": True},
}
"""What is changed of each body, one thing at a time."""


def runs(preset: Preset, seed: int) -> list[Run]:
    """Every body with every change, and the trunks of what is trained with and without its stem."""
    counts = {"smoke": (3, 3), "laptop": (12, 24), "paper": (40, 40)}[preset]  # dense ones vary more and are quick
    alone = ({"blocks": 0, "frozen": frozen} for frozen in (False, True))
    found = []
    for changed in (*VARIED.values(), *alone):
        learner = Learner(steps=20 if preset == "smoke" else 200, **changed)
        for bodies, count in zip((BODIES[:2], BODIES[2:]), counts, strict=True):
            found += replicated(learnt, learner, count, seed, body=bodies)
    return found


def changes(readings: Readings, body: str, **changed: Any) -> Float[Tensor, " replicates"]:
    """By how many branches the mean depth grew; all that is not named is as usual."""
    usual = {name: getattr(Learner(), name) for named in VARIED.values() for name in named}
    depth = stacked(readings, "depth", "learnt", body=body, blocks=Learner().blocks, **{**usual, **changed})
    return depth[:, 1] - depth[:, 0]


def _goes(readings: Readings, body: str, name: str, band: Band) -> Judgement:
    """Whether the mean depth of one network grows or falls."""
    sentence = f"Branches, of {Learner().blocks}, by which the mean depth changes; {body}, {name}."
    return decide(over_seeds(changes(readings, body, **VARIED[name])), band, sentence)


def _more(readings: Readings, body: str, name: str, other: str) -> Judgement:
    """Whether a network deepens more than the usual one of another body, or of its own."""
    more = changes(readings, body, **VARIED[name]) - changes(readings, other)
    return decide(over_seeds(more), GROWS, f"Change of the mean depth: {body}, {name}, minus {other}, usual.")


def trunks(readings: Readings) -> tuple[Float[Tensor, "replicates networks"], Float[Tensor, "replicates networks"]]:
    """The losses of the trunks alone, bodies with the stem free and frozen, and how much each network deepens."""
    kinds = [(body, frozen) for body in BODIES for frozen in (False, True)]
    alone = [stacked(readings, "loss", "learnt", blocks=0, body=body, frozen=frozen) for body, frozen in kinds]
    deepening = [changes(readings, body, frozen=frozen) for body, frozen in kinds]
    both = min(map(len, deepening))  # replicates that all have
    return torch.stack([one[:both] for one in alone], 1), torch.stack([one[:both] for one in deepening], 1)


@claim("question 1", "> 0")
def _trunk(readings: Readings) -> Judgement:
    """The less its trunk can learn alone, the more a network with batch norm deepens."""
    alone, deepening = trunks(readings)
    found = torch.stack([slope(losses.tolist(), change) for losses, change in zip(alone, deepening, strict=True)])
    sentence = "Slope of the change of the mean depth over the loss of the trunk alone, six networks a replicate."
    return decide(over_seeds(found), GROWS, sentence)


_GOES = {
    "pooled": ("deeper under a mean over positions", "> 0", GROWS),
    "dense": ("shallower if it is dense", "< 0", FALLS),
}
_SIGNS = claims(
    _goes,
    *(
        (f"{body}_{name.replace(' ', '_')}", f"It gets {words}: {name}.", "question 1", sign, body, name, band)
        for body, (words, sign, band) in _GOES.items()
        for name in VARIED
        if name not in ("frozen stem", "no norm")
    ),
)
_ROWS = (
    ("head", "A head that reads every position takes depth away from the same blocks.", "pooled", "usual", "flattened"),
    ("stem", "A dense network whose stem is frozen loses less depth.", "dense", "frozen stem", "dense"),
    ("norm", "Without normalisation it loses less, too: its branches may grow.", "dense", "no norm", "dense"),
)
_PAIRS = claims(_more, *((name, words, "question 1", "> 0", *rest) for name, words, *rest in _ROWS))
CLAIMS = (*_PAIRS, _trunk, *_SIGNS)


def figures(readings: Readings) -> tuple[Figure, ...]:
    """The map: all bodies and changes; and the deepening against what the trunk alone can do."""
    bars = []
    for body in BODIES:
        grown = torch.stack([changes(readings, body, **kind) for kind in VARIED.values()], 1)
        means = mean_points(range(len(VARIED)), grown, body)
        bars.append(Bars(tuple(VARIED), means.y, body, means.error))
    alone, deepening = trunks(readings)
    mapped = "Branches by which the mean depth of the logits grows in training; means with standard errors."
    against = (
        "Each point is one network with batch norm, its stem free or frozen: how much it deepens, and the loss that "
        "its stem and head reach without any block; means with standard errors over replicates."
    )
    pairs, change = (
        zip(BODIES, alone.split(2, dim=1), deepening.split(2, dim=1), strict=True),
        "change of the mean depth",
    )
    points = [mean_points(losses.mean(0), grown, body) for body, losses, grown in pairs]
    names = ("map", "When training makes a network deeper"), ("trunk", "Who learns: the trunk or the branches")
    return (
        statistics.figure(names[0], mapped, ("what is changed", change), bars),
        statistics.figure(names[1], against, ("loss of the trunk alone", change), points),
    )


_DEVIATIONS = (
    "A question of ours: the statements come from three runs a setting with seed 1000 and are judged on other seeds.",
    "Embedded digits of 16×16 pixels, 1,700 to train on, 200 steps of SGD with rate 0.02, momentum 0.9 and a cosine; "
    "depth is that of the logits of 64 others.",
)
ITEM = Item("depth", "when training makes a network deeper", runs, CLAIMS, figures, statistics.raw_tables, _DEVIATIONS)
