"""What the start says without a step: how well the last features explain the targets, and how gradients agree."""

import math

import numpy as np
import torch
from torch import Tensor, nn

from skiplens.base.preserve_state import preserve_state
from skiplens.graph.batch import Batch
from skiplens.graph.loss import LossFunction
from skiplens.signal.layers import LayerStates
from skiplens.task.reading import TaskReading
from skiplens.trainability.features import slope_of, unexplained

SMALLEST = 1e-12


def start_features(
    model: nn.Module,
    batch: Batch,
    loss: LossFunction,
    task: TaskReading,
    states: LayerStates,
    size: int | None = None,
) -> dict[str, float]:
    """Readings of the start as numbers of moderate size; two gradients, each of half of the batch, `size` at a time."""
    with preserve_state(model), torch.enable_grad():
        halves = [_gradient(model, loss, batch.select(half), size) for half in _halves(batch.samples)]
    alike = {
        "start": _logarithm(task.loss / task.guess if task.guess else 1.0),
        "explained": unexplained(model, batch, size),
        "agreement": _cosine(*halves),
        "shut": float(states.shut.nan_to_num(0).max()) if len(states.shut) else 0.0,
    }
    return alike | _by_layer(states, task.loss)


def _by_layer(states: LayerStates, loss: float) -> dict[str, float]:
    """How things change from the first layer with weights to the last; NaN where there is none."""
    chain = states.of_kind("weights")
    if not chain:
        return dict.fromkeys((*_RATIOS, "layers"), math.nan)
    gradients, spreads, outputs = (
        values[chain].double() for values in (states.gradients, states.spreads, states.outputs)
    )
    moved = (states.parameter_gradients[chain] * states.parameter_norms[chain]).double()
    ratios = (
        float(spreads[-1]),
        float(spreads[-1]) / max(states.input_spread, SMALLEST),
        float(gradients[0] / gradients[-1]),
        float(outputs.max() / outputs.min()),
        float(moved.sum()) / max(loss, SMALLEST),
        float(moved.max() / moved.clamp_min(SMALLEST).min()),
    )
    return {**dict(zip(_RATIOS, map(_logarithm, ratios), strict=True)), "layers": math.log(len(chain))}


_RATIOS = ("spread", "spread kept", "gradient ratio", "signal ratio", "sensitivity", "uneven")


def _halves(samples: int) -> tuple[Tensor, Tensor]:
    order = torch.arange(samples)
    return (order[::2], order[1::2]) if samples > 1 else (order, order)


def _gradient(model: nn.Module, loss: LossFunction, batch: Batch, size: int | None) -> list[Tensor]:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    _, found = slope_of(model, loss, batch, parameters, size)
    return [gradient for gradient in found if gradient is not None]


def _cosine(first: list[Tensor], second: list[Tensor]) -> float:
    """Mean over parameters of the cosine between two gradients: each parameter counts the same, as for Adam."""
    cosines = [
        float((a * b).sum() / (a.norm() * b.norm()).clamp_min(SMALLEST)) for a, b in zip(first, second, strict=True)
    ]
    return float(np.mean(np.nan_to_num(cosines))) if cosines else 0.0


def _logarithm(value: float) -> float:
    """ln, within ±30; what is no number counts as very large."""
    if math.isnan(value):
        return 30.0
    return max(-30.0, min(30.0, math.log(max(value, 1e-300)))) if value < math.inf else 30.0
