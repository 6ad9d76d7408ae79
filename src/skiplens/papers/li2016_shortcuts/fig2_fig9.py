"""What the paper says about norms and test errors, decided over replicates."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from skiplens.papers.images import missing
from skiplens.papers.li2016_shortcuts import images
from skiplens.papers.li2016_shortcuts.images import SIZES, ShortcutTraining, Sizes
from skiplens.papers.statistics import Band, curve, decide, decide_correction, over_seeds, raw_tables, stacked, values
from skiplens.papers.study import Claim, Item, Judgement, Preset
from skiplens.plots.figure import Figure, Line, Mark, Points, Reference, colour, numbers
from skiplens.readings.reading import Measurement

FORGETTING = 26
"""Epochs in which weight decay forgets the first norms: 1 / (0.1 · 1e-4 / (1 - 0.9)) steps of 391 an epoch."""

SETTLED = 2 * FORGETTING

SHORTEST = 30
"""Epochs from which test errors are compared."""

EXTREMELY_DEEP, DEEP = 400, 110

CHANGED, UNCHANGED = 0.25, 0.01
"""Relative change of a network that is changed indeed when its convolutions are halved, and of one that is not."""


def judge_norms(readings: Sequence[Measurement], during: bool) -> Judgement:
    """Whether deeper networks have smaller norms."""
    sentence = (
        f"Mean norm of a network's convolutions {'averaged over the epochs' if during else 'after the last epoch'}, "
        "minus that of the next shallower network; the largest difference."
    )
    problem = _problem(readings, SETTLED, "weight decay needs that long to forget the first norms.")
    if problem:
        return Judgement("not attempted", explanation=f"{sentence} {problem}")
    columns = [stacked(readings, "norm", depth=depth) for depth in values(readings, "depth")]
    norms = torch.stack([column[:, 1:].mean(1) if during else column[:, -1] for column in columns], dim=1)
    return decide(over_seeds(norms.diff(dim=1)), Band(-math.inf, 0.0), sentence)


def judge_scale(readings: Sequence[Measurement]) -> Judgement:
    """Whether norms of convolutions say how large residual functions are."""
    if not readings:
        return Judgement("not attempted", explanation=missing("cifar10"))
    depths = values(readings, "depth")
    found = over_seeds(torch.stack([stacked(readings, "change_when_halved", depth=depth) for depth in depths], dim=1))
    sentence = (
        "‖f(W/2) - f(W)‖ / ‖f(W)‖, W being all convolutions of a trained network. If norms said how large the layers' "
        "responses are, f would change. Batch norm takes the scale out again: f stays, up to the ε of batch norm, so "
        "smaller norms of deeper networks are set by weight decay and learning rate and say nothing about f."
    )
    return decide_correction((found, Band(CHANGED, math.inf)), (found, Band.around(0.0, UNCHANGED)), sentence)


def judge_parameters(readings: Sequence[Measurement]) -> Judgement:
    """Whether regrouping the convolutions keeps the number of parameters."""
    if not readings:
        return Judgement("not attempted", explanation=missing("cifar10"))
    counts = [stacked(readings, "parameters", depth=depth).double() for depth in values(readings, "depth")]
    spread = max(float(count.max() - count.min()) for count in counts)
    sentence = "Largest difference of the numbers of parameters between shortcut depths, over all depths; exact."
    return Judgement("differs" if spread else "reproduced", spread, 0.0, 0.0, sentence)


def judge_best(readings: Sequence[Measurement]) -> Judgement:
    """Whether shortcuts over two convolutions are the best at the greatest depth."""
    sentence = "Test error with shortcut depth 2 minus that with 1, 3 and 4 at the greatest depth; the largest."
    problem = _problem(readings, SHORTEST, "errors are compared from then on.", DEEP)
    if problem:
        return Judgement("not attempted", explanation=f"{sentence} {problem}")
    errors = _errors(readings, max(values(readings, "depth")), (1, 2, 3, 4))
    one_deviation = float(errors.std(0).square().mean().sqrt())
    differences = errors[:, [1]] - errors[:, [0, 2, 3]]
    return decide(over_seeds(differences), Band.between(-math.inf, 0.0, one_deviation), sentence)


def judge_gain(readings: Sequence[Measurement]) -> Judgement:
    """Whether only shortcuts over two convolutions gain from depths beyond 400."""
    sentence = (
        f"Change of the test error from the last depth below {EXTREMELY_DEEP} to the first above it: negative with "
        "shortcut depth 2, positive with 1, 3 and 4 (whose sign is turned round); the largest."
    )
    problem = _problem(readings, ShortcutTraining().epochs, "degradation is said of whole runs.", EXTREMELY_DEEP)
    if problem:
        return Judgement("not attempted", explanation=f"{sentence} {problem}")
    depths = values(readings, "depth")
    above = min(depth for depth in depths if depth > EXTREMELY_DEEP)
    below = max(depth for depth in depths if depth <= EXTREMELY_DEEP)
    gains = _errors(readings, above, (1, 2, 3, 4)) - _errors(readings, below, (1, 2, 3, 4))
    return decide(over_seeds(gains * torch.tensor([-1.0, 1.0, -1.0, -1.0])), Band(-math.inf, 0.0), sentence)


def judge_longer(readings: Sequence[Measurement]) -> Judgement:
    """Whether shortcuts over more than four convolutions are worse."""
    sentence = "Test error with shortcut depth 6 minus that with 2, at every depth; the smallest."
    problem = _problem(readings, ShortcutTraining().epochs, "worse results are said of whole runs.")
    if not problem and 6 not in values(readings, "shortcut_depth"):
        problem = "This preset has no such networks."
    if problem:
        return Judgement("not attempted", explanation=f"{sentence} {problem}")
    pairs = [_errors(readings, depth, (2, 6)) for depth in values(readings, "depth")]
    return decide(
        over_seeds(torch.stack([pair[:, 1] - pair[:, 0] for pair in pairs], 1)), Band(0.0, math.inf), sentence
    )


def _errors(readings: Sequence[Measurement], depth: int, shortcut_depths: Sequence[int]) -> Tensor:
    """Test errors at a depth, (replicates, shortcut depths)."""
    columns = [stacked(readings, "error", depth=depth, shortcut_depth=length) for length in shortcut_depths]
    return torch.stack(columns, dim=1)


def _problem(readings: Sequence[Measurement], epochs: int, why: str, depth: int = 0) -> str:
    """Why the runs say nothing about the paper's: other images, too short, or too shallow."""
    if not readings:
        return missing("cifar10")
    one = readings[0]
    if one.setting("data") != "cifar10" or one.setting("images") is not None:
        return (
            f"This preset trains networks of width {one.setting('width')} on {one.setting('images')} images, to see "
            "that everything runs; use --preset paper on a GPU."
        )
    if one.setting("epochs") < epochs:
        return f"The runs have {one.setting('epochs')} epochs, at least {epochs} are wanted: {why}"
    deepest = max(values(readings, "depth"))
    return "" if deepest >= depth else f"The deepest network has {deepest} layers, more than {depth} are wanted."


_SMALLER = "The deeper a residual network is, the smaller its average Frobenius norm is"

FIG2 = (
    Claim(
        "during",
        f"{_SMALLER} during training.",
        "Section 4.1, figure 2",
        "decreasing",
        partial(judge_norms, during=True),
    ),
    Claim(
        "after",
        f"{_SMALLER} when the training ends.",
        "Section 4.1, figure 2",
        "decreasing",
        partial(judge_norms, during=False),
    ),
    Claim(
        "responses",
        "The norms confirm that deeper ResNets have smaller magnitudes of layer responses.",
        "Section 4.1",
        "norms measure responses",
        judge_scale,
    ),
)

FIG9 = (
    Claim(
        "parameters",
        "The shortcut depth changes while the total number of parameters is fixed.",
        "Section 5.3.2",
        "the same number",
        judge_parameters,
    ),
    Claim("best", "Shortcut depth 2 gives the smallest error.", "Figure 9", "lowest, up to one deviation", judge_best),
    Claim(
        "gain",
        "Beyond 400 layers only shortcut depth 2 gains from depth, the others degrade.",
        "Section 5.3.2, figure 9",
        "error falls for 2, rises for others",
        judge_gain,
    ),
    Claim("longer", "Shortcut depths larger than 4 yield worse results.", "Figure 9", "higher error", judge_longer),
)


def draw_fig2(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Mean norm of the convolutions against epochs, one curve a depth."""
    if not readings:
        return ()
    marks: list[Mark] = []
    for number, depth in enumerate(values(readings, "depth")):
        norms = stacked(readings, "norm", depth=depth)
        marks += curve(range(norms.shape[1]), norms, f"{depth} layers", number)
    return (
        Figure(
            name="norms",
            title=f"Figure 2: average Frobenius norms, {_trained_on(readings)}",
            caption="Means over runs with one standard deviation; lines mark where the learning rate falls. At the "
            "start ‖W‖_F is √(2 inputs) on average; the stem with its three inputs weighs less in deeper networks.",
            x_label="epoch",
            y_label="mean of ‖W‖_F over convolutions",
            marks=(*marks, *_falls(readings)),
        ),
    )


def draw_fig9(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Test error against depth, one series a shortcut depth."""
    if not readings:
        return ()
    depths = values(readings, "depth")
    points, lines = [], []
    for number, length in enumerate(values(readings, "shortcut_depth")):
        columns = [stacked(readings, "error", depth=depth, shortcut_depth=length) for depth in depths]
        errors = 100 * torch.stack(columns, dim=1)
        mean, spread = numbers(errors.mean(0)), numbers(errors.std(0))
        points.append(Points(numbers(depths), mean, f"shortcut depth {length}", spread))
        lines.append(Line(numbers(depths), mean, colour=colour(number)))
    return (
        Figure(
            name="errors",
            title=f"Figure 9: test error, {_trained_on(readings)}, {readings[0].setting('epochs')} epochs",
            caption="Means over runs with one standard deviation; networks of one depth have the same number of "
            "parameters.",
            x_label="depth (weight layers)",
            y_label="test error (%)",
            marks=(*points, *lines),
        ),
    )


def _falls(readings: Sequence[Measurement]) -> list[Reference]:
    """Where the learning rate falls to a tenth."""
    places = enumerate(readings[0].setting("milestones"), 2)
    return [Reference(float(epoch), f"learning rate {0.1**power:.2g}", "x") for power, epoch in places]


def _trained_on(readings: Sequence[Measurement]) -> str:
    """CIFAR-10, or what stands in for it."""
    one = readings[0]
    if one.setting("data") != "cifar10":
        return "digits in place of CIFAR-10"
    return "CIFAR-10" if one.setting("images") is None else f"{one.setting('images')} images of CIFAR-10"


SMALL = (
    "Only the paper preset (one GPU) trains the paper's networks. smoke takes embedded digits, laptop 128 images of "
    "16×16 pixels, both networks of a quarter of the width for one or two epochs: they show that everything runs and "
    "decide what holds at every size."
)

PROGRAM = (
    "As in the public program: Nesterov momentum 0.9, weight decay 1e-4, batches of 128, convolutions from "
    "N(0, 2/(9 outputs)); unlike its stored version every unit begins with batch norm and ReLU, and shortcuts where "
    "the width changes are strided and padded with zeros, so that all shortcut depths have the same parameters."
)

PRECISION = "On a GPU the passes are in bfloat16 with weights in float32."

_COMMON = (SMALL, PROGRAM, PRECISION)


def items(sizes: Mapping[Preset, Sizes], deviations: tuple[str, ...] = ()) -> tuple[Item, ...]:
    """Both items, with runs as large as `sizes` says and further deviations."""
    return (
        Item(
            "fig2",
            "Frobenius norms of CIFAR-10 ResNets during training",
            lambda preset, seed: images.fig2_runs(sizes[preset], seed),
            FIG2,
            draw_fig2,
            raw_tables,
            (*_COMMON, "The paper trains each network once, here several times.", *deviations),
        ),
        Item(
            "fig9",
            "CIFAR-10 test error against depth for several shortcut depths",
            lambda preset, seed: images.fig9_runs(sizes[preset], seed),
            FIG9,
            draw_fig9,
            raw_tables,
            (*_COMMON, "The paper gives no depths: here 36 q + 2, which all shortcut depths divide.", *deviations),
        ),
    )


ITEMS = items(SIZES)
