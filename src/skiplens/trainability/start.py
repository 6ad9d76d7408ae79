"""What the start says without a step: how well the last features explain the targets, and how gradients agree."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from skiplens.base.preserve_state import preserve_state
from skiplens.graph.batch import Batch, tensors_in
from skiplens.graph.loss import LossFunction
from skiplens.signal.layers import LayerStates
from skiplens.task.reading import TaskReading

MOST_ROWS = 256  # samples, or places in them, whose features are compared
RIDGES = 10.0 ** np.arange(-6, 2)  # of the regression, in units of the mean square of the features
SMALLEST = 1e-12


def start_features(
    model: nn.Module, batch: Batch, loss: LossFunction, task: TaskReading, states: LayerStates
) -> dict[str, float]:
    """Readings of the start as numbers of moderate size; two gradients, each of half of the batch."""
    with preserve_state(model), torch.enable_grad():
        watch = _LastFeatures()
        for module in model.modules():
            if any(parameter.ndim > 1 for parameter in module.parameters(recurse=False)):
                module.register_forward_hook(watch)  # `preserve_state` takes it away
        halves = [_gradient(model, loss, batch.select(half)) for half in _halves(batch.samples)]
        with torch.no_grad():
            batch.arguments().call(model)
    rows = _rows(watch.found, batch.targets)
    explained = left_out(*rows, classes=task.classes) if rows is not None else math.nan
    chain = states.of_kind("weights")
    gradients, spreads = states.gradients[chain].double(), states.spreads[chain].double()
    moved = states.parameter_gradients[chain] * states.parameter_norms[chain]
    return {
        "start": _logarithm(task.loss / task.guess),
        "explained": explained,
        "agreement": _cosine(*halves),
        "spread": _logarithm(float(spreads[-1])) if len(chain) else math.nan,
        "spread kept": _logarithm(float(spreads[-1]) / max(states.input_spread, SMALLEST)) if len(chain) else math.nan,
        "gradient ratio": _logarithm(float(gradients[0] / gradients[-1])) if len(chain) else math.nan,
        "signal ratio": _logarithm(float(states.outputs[chain].max() / states.outputs[chain].min())),
        "sensitivity": _logarithm(float(moved.sum()) / max(task.loss, SMALLEST)),
        "uneven": _logarithm(float(moved.max() / moved.clamp_min(SMALLEST).min())),
        "layers": math.log(max(1, len(chain))),
        "shut": float(states.shut.nan_to_num(0).max()),
    }


def left_out(features: np.ndarray, targets: np.ndarray, *, classes: int) -> float:
    """Share of the targets' variance that a ridge regression leaves unexplained in rows that it was not fitted on.

    Each row is left out in turn, which has a closed form; the best of several ridges counts. One is a guess.
    """
    wanted = np.eye(classes)[targets.astype(int)] if classes else targets.reshape(len(targets), -1)
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


class _LastFeatures:
    """Keeps what the last module with a weight matrix was given."""

    found: Tensor | None = None

    def __call__(self, module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        given = next(iter(tensors_in(arguments)), None)
        if given is not None and given.is_floating_point():
            self.found = given.detach()


def _rows(features: Tensor | None, targets: Tensor) -> tuple[np.ndarray, np.ndarray] | None:
    """Features and targets row by row: those of samples, or of places in them where each has a target."""
    if features is None or features.shape[0] != targets.shape[0] or not bool(features.isfinite().all()):
        return None
    if targets.ndim == 2 and not targets.is_floating_point() and features.shape[:2] == targets.shape:
        features, targets = features.flatten(0, 1), targets.flatten()
        chosen = torch.linspace(0, len(targets) - 1, min(MOST_ROWS, len(targets))).long().to(targets.device)
        features, targets = features[chosen], targets[chosen]
    if not targets.is_floating_point() and targets.ndim != 1:
        return None
    return features.flatten(1).double().cpu().numpy(), targets.cpu().numpy()


def _halves(samples: int) -> tuple[Tensor, Tensor]:
    order = torch.arange(samples)
    return (order[::2], order[1::2]) if samples > 1 else (order, order)


def _gradient(model: nn.Module, loss: LossFunction, batch: Batch) -> list[Tensor]:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    found = torch.autograd.grad(loss(model, batch), parameters, allow_unused=True)
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
