"""Figures 1(d) and 1(e): batch-norm scales and weight norms of networks that learn to tell Gaussians apart."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from skiplens import zoo
from skiplens.base import Float, Randomness, option
from skiplens.data.synthetic import Difference, gaussian_classes
from skiplens.graph import ResidualNetwork, dissect
from skiplens.papers import statistics
from skiplens.papers.littwin2016_ensembles import common
from skiplens.papers.littwin2016_ensembles.common import NEGATIVE, POSITIVE, REPLICATES, SIZES, random_network
from skiplens.papers.statistics import Readings, curve, decide, figure, over_seeds, raw_tables, replicated, stacked
from skiplens.papers.study import Claim, Item, Judgement, Preset, claim, claims
from skiplens.paths.spectrum import measure
from skiplens.plots.figure import Figure, Mark, Reference, numbers
from skiplens.report.during_training.measurer import MeasureAlong
from skiplens.sweeps.run import Run
from skiplens.training import Recipe, evaluate
from skiplens.zoo.littwin2016 import BatchScale

BATCH = 128
HELD_OUT = 256


class Gaussians(statistics.ReplicateSettings):
    """Training to tell 50 Gaussians apart (figures 1d and 1e)."""

    setting: Literal["literal", "centred", "large_head", "plain", "plain_large"] = option("literal", "which network")
    looks: tuple[int, ...] = option((0, 500, 1000, 1500), "steps at which the network is looked at")


class Moments(statistics.ReplicateSettings):
    """The mean square of the units of each layer of a random network with batch-norm scales (section 4.1)."""

    scaling: Literal["uncentred", "centred"] = option("uncentred", "equation 20 as printed, or centred")
    depth: int = option(10, "layers")
    width: int = option(400, "units of a layer and features of an input")
    samples: int = option(400, "inputs")


@dataclass(frozen=True)
class GaussianSetting:
    """A network, the task, the step size and when to look; what is not said is as in the zoo's `ensemble_resnet`."""

    network: dict[str, Any]
    differ_in: Difference
    learning_rate: float
    looks: tuple[int, ...]


SETTINGS = {
    "literal": GaussianSetting({"scaling": "uncentred", "output_scale": 0.01}, "means", 0.002, (0, 500, 1000, 1500)),
    "centred": GaussianSetting({"scaling": "centred", "output_scale": 0.1}, "covariances", 0.05, (0, 200, 500, 1000)),
    "large_head": GaussianSetting({"scaling": "centred", "output_scale": 1.0}, "means", 0.1, (0, 50, 100, 200)),
    "plain": GaussianSetting({"weight_scale": 0.3, "output_scale": 0.01}, "covariances", 0.02, (0, 500, 1000, 2000)),
    "plain_large": GaussianSetting(
        {"weight_scale": 1.0, "output_scale": 0.01}, "covariances", 0.02, (0, 50, 200, 1000)
    ),
}
"""Equation 20 as printed; centred; centred with a large head, whose scales fall; without scales, small and large."""


def gaussians(settings: Gaussians) -> dict[str, Tensor]:
    """At each look: the scales λ, the norm of all weights, energies by path length, and the accuracy at the end."""
    randomness, setting = Randomness(settings.seed).child(settings.key()), SETTINGS[settings.setting]
    task = gaussian_classes(randomness.child("task").torch(), setting.differ_in, dtype=torch.float32)
    network = zoo.build("ensemble_resnet", randomness.child("weights"), **setting.network).float()
    look = _FeatureLook(task.draw(HELD_OUT, randomness.child("held out").torch()).inputs)
    recipe = Recipe(learning_rate=setting.learning_rate, steps=max(settings.looks), seed=randomness.entropy() % 2**31)
    plan = MeasureAlong(look, at_steps=settings.looks)
    taken = common.looked_at(network, partial(task.draw, BATCH), recipe, plan)  # a fresh batch each step
    accuracy = evaluate(network, task.draw(1000, randomness.child("test").torch())).accuracy
    rows = {name: torch.stack([value[name] for value in taken]) for name in taken[0]}
    return {"step": torch.tensor(settings.looks), **rows, "accuracy": torch.tensor(accuracy)}


@dataclass(eq=False)
class _FeatureLook:
    """Scales, norm and the path spectrum of the units of the last layer, on the same inputs each time."""

    inputs: Any
    taken_apart: ResidualNetwork | None = None

    def __call__(self, network: nn.Module) -> dict[str, Tensor]:
        if self.taken_apart is None:
            self.taken_apart = dissect(common.features(network), self.inputs)
        energy = measure(self.taken_apart, self.inputs).energy.double()
        shares = energy / energy.sum()
        scales = [module.scale.detach().mean() for module in network.modules() if isinstance(module, BatchScale)]
        weights = [
            parameter.detach().double().square().sum()
            for name, parameter in network.named_parameters()
            if parameter.ndim == 2 and not name.startswith("head")
        ]
        return {
            "mean_length": 1 + shares @ torch.arange(len(shares), dtype=torch.float64),
            "weight_norm": torch.stack(weights).sum().sqrt(),
            "scale": torch.stack(scales).double() if scales else torch.zeros(0, dtype=torch.float64),
            "share": shares,
        }


def moments(settings: Moments) -> dict[str, Tensor]:
    """E N_l² over units and samples, after each layer."""
    network, units = random_network(settings, settings.depth, scaling=settings.scaling)
    squares = []
    with torch.no_grad():
        for layer in (network[0], *network[1].children()):
            units = layer(units)
            squares.append(units.square().mean())
    return {"layer": torch.arange(1, settings.depth + 1), "mean_square": torch.stack(squares)}


def fig1d_runs(preset: Preset, seed: int) -> list[Run]:
    """Networks with batch-norm scales, in three settings, and random ones."""
    sizes = SIZES[preset]
    return [
        *_gaussian_runs(preset, seed, sizes.trainings, "literal", "large_head"),
        *_gaussian_runs(preset, seed, sizes.varied, "centred"),
        *replicated(moments, Moments(width=sizes.width), sizes.trainings, seed, scaling=("uncentred", "centred")),
    ]


def fig1e_runs(preset: Preset, seed: int) -> list[Run]:
    """Networks without, from small and from large weights."""
    return _gaussian_runs(preset, seed, SIZES[preset].trainings, "plain", "plain_large")


def _gaussian_runs(preset: Preset, seed: int, count: int, *names: str) -> list[Run]:
    runs: list[Run] = []
    for name in names:
        looks = SIZES[preset].looks(SETTINGS[name].looks)
        runs += replicated(gaussians, Gaussians.from_json({"setting": name, "looks": looks}), count, seed, max(looks))
    return runs


def along(readings: Readings, array: str, setting: str) -> Tensor:
    """What was measured at each look, (replicates, looks, …): the step, the scales λ_l, the norm of all weights."""
    return stacked(readings, array, "gaussians", setting=setting)


def judge_growth(readings: Readings, setting: str) -> Judgement:
    """Whether the mean scale grows from look to look."""
    means = along(readings, "scale", setting).mean(2)
    sentence = (
        "Smallest growth of the mean of all λ from one look to the next, in each run; it ends at "
        f"{float(means[:, -1].mean()):.3f}, from 1."
    )
    return decide(over_seeds(means.diff(dim=1).min(1).values), POSITIVE, sentence)


def judge_every_layer(readings: Readings, setting: str) -> Judgement:
    """Whether every scale ends above its start."""
    last = along(readings, "scale", setting)[:, -1]
    lowest = float(last.min(1).values.mean())
    sentence = "Share of the layers whose λ ends above its start, in each run; the lowest λ ends at "
    sentence += f"{lowest:.2f} on average."
    return common.judge_always((last > 1).double().mean(1), sentence)


def judge_first_layer(readings: Readings, setting: str) -> Judgement:
    """Whether the first scale ends elsewhere than the others: it grows more."""
    last = along(readings, "scale", setting)[:, -1]
    first, others = last[:, 0], last[:, 1:].mean(1)
    sentence = (
        f"λ_1 at the end minus the mean of the other layers' scales: they end at {float(first.mean()):.2f} and "
        f"{float(others.mean()):.2f}. The paper says that they differ; we ask for more growth of the first."
    )
    return decide(over_seeds(first - others), POSITIVE, sentence)


@claim("Figure 1d, caption", "trained")
def _learned(readings: Readings) -> Judgement:
    """The network learns to discriminate between 50 Gaussians."""
    accuracy = stacked(readings, "accuracy", "gaussians", setting="literal")
    sentence = f"Share of runs with an accuracy above 0.7 on fresh samples; the lowest is {float(accuracy.min()):.2f}."
    return common.judge_always((accuracy > 0.7).double(), sentence)


def judge_deeper_with_scales(readings: Readings, setting: str) -> Judgement:
    """Whether growing scales make the ensemble deeper."""
    change = over_seeds(_change(along(readings, "mean_length", setting)))
    grown = along(readings, "scale", setting).mean(2)[:, -1] - 1
    return statistics.decide_correction(
        (change, POSITIVE),
        (change, NEGATIVE),
        f"Change of the mean path length (of 10 layers) while the mean scale grows by {float(grown.mean()):.0%}. The "
        "statement tested in place of a printed one that fails: it falls, since only ratios of scales count and λ_1 "
        "shortens paths.",
    )


@claim("Section 4.1, after Eq. 20", "1")
def _recursion(readings: Readings) -> Judgement:
    """At λ = 1 the mean square grows by 1 from layer to layer: E N²(l+1) = 1 + E N²(l)."""
    literal, centred = (
        (squares[:, -1] - squares[:, 0]) / (squares.shape[1] - 1)
        for squares in (stacked(readings, "mean_square", "moments", scaling=name) for name in ("uncentred", "centred"))
    )
    band = statistics.Band.around(1.0, 0.3)
    return statistics.decide_correction(
        (over_seeds(literal), band),
        (over_seeds(centred), band),
        "Mean growth of E N² from a layer to the next, random networks of 10 layers, centred branches. Without "
        f"centring, as equation 20 is printed, branch and shortcut are correlated: {float(literal.mean()):.0f}.",
    )


def judge_norm(readings: Readings, setting: str) -> Judgement:
    """Whether the norm of the weights grows from look to look."""
    found = along(readings, "weight_norm", setting)
    sentence = (
        "Share of runs in which ‖W‖ grows from every look to the next; it ends at "
        f"{float((found[:, -1] / found[:, 0]).mean()):.3f} times its start."
    )
    return common.judge_always((found.diff(dim=1) > 0).all(1).double(), sentence)


@claim("Section 4.2, before Eq. 24", "> 0")
def _deeper(readings: Readings) -> Judgement:
    """Without batch normalisation, too, the ensemble gets deeper (small start)."""
    found = along(readings, "mean_length", "plain")
    sentence = (
        f"Change of the mean path length (10 layers) from start to end; it starts at {float(found[:, 0].mean()):.2f} "
        f"and ends at {float(found[:, -1].mean()):.2f}."
    )
    return decide(over_seeds(_change(found)), POSITIVE, sentence)


@claim("Section 4.2, before Eq. 24", "> 0")
def _deeper_large_start(readings: Readings) -> Judgement:
    """Without batch normalisation, too, the ensemble gets deeper (weights of variance 1/inputs)."""
    found = along(readings, "mean_length", "plain_large")
    change = over_seeds(_change(found))
    return statistics.decide_correction(
        (change, POSITIVE),
        (change, NEGATIVE),
        f"Change of the mean path length from weights of variance 1/inputs: {float(found[:, 0].mean()):.2f} at the "
        f"start, {float(found[:, -1].mean()):.2f} at the end. Tested in place of a printed statement that "
        "fails: from large branches it falls.",
    )


def _change(history: Float[Tensor, "replicates looks"]) -> Float[Tensor, " replicates"]:
    return history[:, -1] - history[:, 0]


def _by_setting(
    words: tuple[str, str, str, str], judge: Callable[..., Judgement], settings: Sequence[str] = ("literal", "centred")
) -> tuple[Claim, ...]:
    """A claim for each setting of figure 1(d); the first setting, equation 20 as printed, adds nothing to its name."""
    name, statement, printed_at, paper = words
    ways = {"literal": "Eq. 20 as printed", "centred": "centred", "large_head": "centred, logits that start large"}
    ends = {setting: "" if setting == "literal" else f"_{setting}" for setting in settings}
    rows = ((name + end, f"{statement} ({ways[own]}).", printed_at, paper, own) for own, end in ends.items())
    return claims(judge, *rows)


_GROWTH = ("growth", "The scales λ grow steadily as training goes on", "Figure 1d", "> 0")
_EVERY_LAYER = ("every_layer", "Later lines lie higher at every layer", "Figure 1d, caption", "all layers")

_FIRST_LAYER = (
    "first_layer",
    "The first layer, which cannot be skipped, behaves differently",
    "Section 4.2, after Theorem 3",
    "differs; we ask for > 0",
)

_DEEPER = ("deeper", "Growing scales shift the ensemble to bigger depths", "Section 1; Section 4, claim 2", "> 0")

FIG1D = (
    *_by_setting(_GROWTH, judge_growth, ("literal", "centred", "large_head")),
    *_by_setting(_EVERY_LAYER, judge_every_layer, ("literal",)),
    *_by_setting(_FIRST_LAYER, judge_first_layer),
    _recursion,
    _learned,
    *_by_setting(_DEEPER, judge_deeper_with_scales),
)

_NORM = "The norm of the weights increases steadily"

FIG1E = (
    *claims(
        judge_norm,
        ("growth", f"{_NORM} (small start).", "Figure 1e", "always", "plain"),
        ("large_start", f"{_NORM} (weights of variance 1/inputs).", "Figure 1e", "always", "plain_large"),
    ),
    _deeper,
    _deeper_large_start,
)

SCALED = {"literal": "Eq. 20 as printed", "centred": "centred branches", "large_head": "centred, logits start large"}
PLAIN = {"plain": "small start, 0.3/√inputs", "plain_large": "usual start, 1/√inputs"}


def draw_fig1d(readings: Readings) -> tuple[Figure, ...]:
    """The scales by layer at several stages of training, for each setting, and the depth."""
    return (*(_by_layer(readings, setting) for setting in SCALED), _depth(readings, SCALED))


def draw_fig1e(readings: Readings) -> tuple[Figure, ...]:
    """The norm of the weights against the iteration, and the depth."""
    marks: list[Mark] = []
    for index, (setting, name) in enumerate(PLAIN.items()):
        norms = along(readings, "weight_norm", setting)
        marks += curve(along(readings, "step", setting)[0], norms / norms[:, :1], name, index)
    start = float(along(readings, "weight_norm", "plain")[:, 0].mean())
    norm = figure(
        ("weight_norm", "Figure 1e: norm of the weights without batch normalisation"),
        f"Means over seeds with standard deviations, relative to the start ({start:.2f} for the small one).",
        ("iteration", "‖W‖ over its start"),
        (*marks, Reference(1.0)),
    )
    return norm, _depth(readings, PLAIN)


def _by_layer(readings: Readings, setting: str) -> Figure:
    found = along(readings, "scale", setting)
    layers = numbers(range(1, found.shape[2] + 1))
    steps = enumerate(along(readings, "step", setting)[0].tolist())
    return figure(
        (f"scales_{setting}", f"Figure 1d: batch-norm scales, {SCALED[setting]}"),
        "λ of each layer at stages of training, means over seeds with standard deviations.",
        ("layer l", "λ_l"),
        statistics.curves((layers, found[:, look], f"step {step}") for look, step in steps),
    )


def _depth(readings: Readings, names: dict[str, str]) -> Figure:
    found = {name: [along(readings, array, one) for array in ("step", "mean_length")] for one, name in names.items()}
    return figure(
        ("depth", "Mean path length of the same networks, 10 layers"),
        "Energy-weighted mean length of the paths to the last layer, means and deviations over seeds.",
        ("iteration", "mean path length"),
        statistics.curves((steps[0], lengths, name) for name, (steps, lengths) in found.items()),
    )


_TASK = "The paper gives neither the task nor the recipe. Here: "

_FIG1D = (
    f"{_TASK}20 features, fresh samples each step, width 64, SGD, "
    "batches of 128. Eq. 20 as printed: means and covariances differ, head of scale 0.01, rate 0.002. Centred: only "
    "covariances differ, head 0.1, rate 0.05. Large head: means and covariances differ, head 1, rate 0.1.",
    "Whether the scales grow depends on the setting: growth was seen when the logits start small and the step causes "
    "no early transient. In other settings, one of which is shown, the mean scale fell or hardly moved.",
    REPLICATES,
)

_FIG1E = (
    f"{_TASK}Gaussians that differ in their covariances, 20 features, "
    "width 64, SGD with rate 0.02, batches of 128, weights that start as 0.3/√inputs or 1/√inputs.",
    REPLICATES,
)

ITEMS = (
    Item("fig1d", "batch-norm scales during training", fig1d_runs, FIG1D, draw_fig1d, raw_tables, _FIG1D),
    Item("fig1e", "weight norm during training without batch norm", fig1e_runs, FIG1E, draw_fig1e, raw_tables, _FIG1E),
)
