"""Depth during training: does the ensemble of a real network get deeper as it learns?"""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.papers.images import missing
from skiplens.papers.statistics import Band, chosen, curve, decide, decide_correction, over_seeds, stacked, values
from skiplens.papers.study import Claim, Judgement
from skiplens.plots.figure import Band as figure_Band
from skiplens.plots.figure import Figure, Line
from skiplens.readings.reading import Measurement

GROWS, FALLS = Band(0.0, math.inf), Band(-math.inf, 0.0)

SMALL_CONV = (
    " This is said of the networks measured here only: other small conv nets got shallower (page of the errata)."
)


def depths(readings: Sequence[Measurement], network: str, normalised: bool) -> list[Float[Tensor, "replicates looks"]]:
    """The mean depth at each look, for each data set on which the network was trained."""
    kind = {"network": network, "normalised": normalised}
    names = values(readings, "images", "images", **kind)
    return [stacked(readings, "mean_depth", "images", images=name, **kind) for name in names]


def judge_deeper(readings: Sequence[Measurement], network: str, normalised: bool) -> Judgement:
    """Whether the mean depth grows."""
    if not readings:
        return _no_data()
    found = depths(readings, network, normalised)
    change = over_seeds(torch.stack([depth[:, -1] - depth[:, 0] for depth in found], dim=1))
    return decide(change, GROWS, _sentence(readings, network, normalised) + (SMALL_CONV if network == "conv" else ""))


def judge_dense(readings: Sequence[Measurement]) -> Judgement:
    """Whether it does in dense networks with batch norm."""
    if not readings:
        return _no_data()
    found = depths(readings, "dense", True)
    change = over_seeds(torch.stack([depth[:, -1] - depth[:, 0] for depth in found], dim=1))
    corrected = " Tested in place of a printed statement that fails: these networks get shallower."
    return decide_correction((change, GROWS), (change, FALLS), _sentence(readings, "dense", True) + corrected)


def judge_start(readings: Sequence[Measurement]) -> Judgement:
    """Whether networks start shallower than half their depth."""
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


def _sentence(readings: Sequence[Measurement], network: str, normalised: bool) -> str:
    kind = {"network": network, "normalised": normalised}
    reading = chosen(readings, "images", **kind)[0]
    accuracy = float(stacked(readings, "accuracy", "images", **kind).mean())
    found = torch.cat([depth[:, [0, -1]] for depth in depths(readings, network, normalised)]).mean(0)
    return (
        f"Change of the mean number of branches (of {reading.setting('blocks')}) on the way of the logits; from "
        f"{float(found[0]):.2f} to {float(found[1]):.2f} on average, test accuracy {accuracy:.2f}."
    )


_CENTRAL = "As training goes on the ensemble becomes deeper and deeper"

DEPTH = (
    Claim(
        "initially_shallow",
        "Initially the ensemble is mostly at depths lower than half the network's depth.",
        "Abstract",
        "< 0.5",
        judge_start,
    ),
    Claim(
        "conv_batch_norm",
        f"{_CENTRAL} (conv net, batch norm).",
        "Abstract",
        "> 0",
        partial(judge_deeper, network="conv", normalised=True),
    ),
    Claim("dense_batch_norm", f"{_CENTRAL} (dense net, batch norm).", "Abstract", "> 0", judge_dense),
    Claim(
        "dense_plain",
        f"{_CENTRAL} (dense net, no batch norm, small branches).",
        "Abstract",
        "> 0",
        partial(judge_deeper, network="dense", normalised=False),
    ),
)

Kind = tuple[str, str, bool]


def draw_depth_during_training(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Depth against steps for all networks, then the spectra of each; none where there were no data."""
    kinds = list(dict.fromkeys(_kind(reading) for reading in readings))
    if not kinds:
        return ()
    return (_depths(readings, kinds), *(_spectra(readings, kind) for kind in kinds))


def _kind(reading: Measurement) -> Kind:
    return reading.setting("images"), reading.setting("network"), reading.setting("normalised")


def _name(kind: Kind) -> str:
    images, network, normalised = kind
    return f"{network}, {'batch norm' if normalised else 'no batch norm'}, {images}"


def _settings(kind: Kind) -> dict[str, object]:
    return dict(zip(("images", "network", "normalised"), kind, strict=True))


def _depths(readings: Sequence[Measurement], kinds: list[Kind]) -> Figure:
    marks: list[figure_Band | Line] = []
    for index, kind in enumerate(kinds):
        steps, depths = (stacked(readings, name, "images", **_settings(kind)) for name in ("step", "mean_depth"))
        marks += curve(steps[0], depths, _name(kind), index)
    return Figure(
        name="depth",
        title="Mean depth during training",
        caption="How many branches the energy of the logits passes on average; means over seeds with standard "
        "deviations. The conv net gets deeper, the dense one with batch norm shallower.",
        x_label="steps",
        y_label="mean depth (branches)",
        marks=tuple(marks),
    )


def _spectra(readings: Sequence[Measurement], kind: Kind) -> Figure:
    shares = stacked(readings, "share", "images", **_settings(kind))
    steps = stacked(readings, "step", "images", **_settings(kind))[0]
    marks: list[figure_Band | Line] = []
    for index, look in enumerate((0, -1)):
        marks += curve(range(shares.shape[2]), shares[:, look], f"step {int(steps[look])}", index)
    return Figure(
        name=f"spectrum_{kind[1]}_{'scaled' if kind[2] else 'plain'}_{kind[0]}",
        title=f"Path spectrum before and after training: {_name(kind)}",
        caption="Share of the energy of the logits that passes so many branches; means and deviations over seeds.",
        x_label="branches on the path",
        y_label="share of the energy",
        marks=tuple(marks),
    )
