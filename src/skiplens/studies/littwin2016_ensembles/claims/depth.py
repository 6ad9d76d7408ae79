"""Depth during training: does the ensemble of a real network get deeper as it learns?"""

import math
from collections.abc import Sequence
from functools import partial

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.readings import Measurement
from skiplens.studies.claim import Claim, Judgement
from skiplens.studies.images import missing
from skiplens.studies.selection import chosen, stacked, values
from skiplens.studies.statistics import Band, decide, decide_correction, over_seeds

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
