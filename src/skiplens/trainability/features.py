"""What a batch says, piece by piece: a gradient, and signs of trouble before the first step."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from skiplens.base.preserve_state import preserve_state
from skiplens.graph.batch import Batch, tensors_in
from skiplens.graph.loss import LossFunction
from skiplens.graph.pieces import cut, slopes
from skiplens.signal.layers import LayerStates

MOST_ROWS = 256  # samples, or places in them, whose features are compared
RIDGES = 10.0 ** np.arange(-6, 2)  # of the regression, in units of the mean square of the features
SMALLEST = 1e-12


def slope_of(
    model: nn.Module, loss: LossFunction, batch: Batch, parameters: list[nn.Parameter], size: int | None
) -> tuple[Tensor, list[Tensor | None]]:
    """The loss of a batch and its gradient, `size` samples at a time; all at once if None."""
    pieces = cut(batch, size)
    if len(pieces) == 1:
        value = loss(model, batch)
        return value.detach(), list(torch.autograd.grad(value, parameters, allow_unused=True))
    value, parts = slopes(model, pieces, lambda outputs: loss.of(outputs, batch), lambda p: p.arguments().call(model))
    sums: list[Tensor | None] = [None] * len(parameters)
    for outputs, by in parts:
        for place, found in enumerate(torch.autograd.grad(outputs, parameters, by, allow_unused=True)):
            before = sums[place]
            sums[place] = found if before is None else before if found is None else before + found
    return value, sums


def unexplained(model: nn.Module, batch: Batch, size: int | None = None) -> float:
    """Share of the targets' variance that a regression on the last features leaves; NaN where they have no rows.

    One forward pass, `size` samples at a time. One is a guess, and so are features that are no numbers.
    """
    pieces, features = cut(batch, size), list[Tensor]()
    last: list[Tensor] = []  # what the last module with a weight matrix was given

    def watch(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        given = next(iter(tensors_in(arguments)), None)
        if given is not None and given.is_floating_point():
            last[:] = [given.detach()]

    with preserve_state(model), torch.no_grad():
        for module in model.modules():
            if any(parameter.ndim > 1 for parameter in module.parameters(recurse=False)):
                module.register_forward_hook(watch)  # `preserve_state` takes it away
        for piece in pieces:
            last.clear()
            piece.arguments().call(model)
            features += last
    rows = _rows(torch.cat(features), batch.targets) if len(features) == len(pieces) else None
    return math.nan if rows is None else left_out(*rows)


def left_out(features: np.ndarray, targets: np.ndarray) -> float:
    """Share of the targets' variance that a ridge regression leaves unexplained in rows that it was not fitted on.

    Each row is left out in turn, which has a closed form; the best of several ridges counts. One is a guess.
    """
    if not np.isfinite(features).all():
        return 1.0
    whole = not np.issubdtype(targets.dtype, np.floating)
    wanted = (targets[:, None] == np.unique(targets)).astype(float) if whole else targets.reshape(len(targets), -1)
    wanted = wanted - wanted.mean(0)
    centred = features - features.mean(0)
    vectors, values, _ = np.linalg.svd(centred, full_matrices=False)
    powers, along = values**2, vectors.T @ wanted
    total = (wanted**2).sum()
    if not total > 0 or not powers.sum() > 0:
        return 1.0
    shares = []
    for ridge in RIDGES * powers.mean():
        kept = powers / (powers + ridge)
        hat = (vectors**2) @ kept + 1 / len(centred)  # the mean is fitted too
        residuals = (wanted - vectors @ (kept[:, None] * along)) / np.maximum(1 - hat, SMALLEST)[:, None]
        shares.append((residuals**2).sum() / total)
    return float(min(1.5, *shares))


def _rows(features: Tensor, targets: Tensor) -> tuple[np.ndarray, np.ndarray] | None:
    """Features and targets row by row: those of samples, or of places in them where each has a target."""
    if features.shape[0] != targets.shape[0]:
        return None
    if targets.ndim == 2 and not targets.is_floating_point() and features.shape[:2] == targets.shape:
        features, targets = features.flatten(0, 1), targets.flatten()
        chosen = torch.linspace(0, len(targets) - 1, min(MOST_ROWS, len(targets))).long().to(targets.device)
        features, targets = features[chosen], targets[chosen]
    if not targets.is_floating_point() and targets.ndim != 1:
        return None
    return features.flatten(1).double().cpu().numpy(), targets.cpu().numpy()


MOST_UNEXPLAINED, MOST_LOST, MOST_UNEVEN = 1.2, 6.0, 8.0  # what is beyond is not worse
UNITS = {"explained": 0.1, "shut": 0.2, "spread kept": -2.0, "signal ratio": 2.0}
"""How much of each is one unit of trouble: about its spread over networks. Of what is kept less is worse."""


def start_features(model: nn.Module, batch: Batch, states: LayerStates, size: int | None = None) -> dict[str, float]:
    """Readings of the start as numbers of moderate size; a forward pass, `size` samples at a time.

    They are the share of the targets that the last features leave unexplained, the share of units that are shut in the
    worst layer, ln of the spread between samples that is left at the last layer with weights, and ln of the largest
    over the smallest signal of such layers.
    """
    found = {
        "explained": unexplained(model, batch, size),
        "shut": float(states.shut.nan_to_num(0).max()) if len(states.shut) else 0.0,
        **_by_layer(states),
    }
    return {**found, "trouble": trouble(found)}


def trouble(found: Mapping[str, float]) -> float:
    """The sum of all signs, each in its unit; one that could not be read says nothing."""
    cut = {
        "explained": min(found["explained"], MOST_UNEXPLAINED) - 1,
        "shut": found["shut"],
        "spread kept": min(max(found["spread kept"], -MOST_LOST), 1.0),
        "signal ratio": min(found["signal ratio"], MOST_UNEVEN),
    }
    return sum(value / UNITS[name] for name, value in cut.items() if not math.isnan(value))


def _by_layer(states: LayerStates) -> dict[str, float]:
    """How things change from the first layer with weights to the last; NaN where there is none."""
    chain = states.of_kind("weights")
    if not chain:
        return {"spread kept": math.nan, "signal ratio": math.nan}
    spreads, outputs = (values[chain].double() for values in (states.spreads, states.outputs))
    return {
        "spread kept": _logarithm(float(spreads[-1]) / max(states.input_spread, SMALLEST)),
        "signal ratio": _logarithm(float(outputs.max() / outputs.min())),
    }


def _logarithm(value: float) -> float:
    """ln, within ±30; what is no number counts as very large."""
    if math.isnan(value):
        return 30.0
    return max(-30.0, min(30.0, math.log(max(value, 1e-300)))) if value < math.inf else 30.0
