"""Published training-free scores of a network on one batch, larger for networks that are said to be better.

Every score is a function (model, inputs, targets) -> float that leaves the model as it was, random state included.
Networks are seen in training mode, so batch norm uses the batch, as in the authors' programs. *Weights* are the
parameters with two axes or more. Where the inputs are tokens, derivatives with respect to the inputs are taken at the
output of the first embedding. A score that does not exist for a network (no activation, numbers beyond float64) is NaN.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from skiplens.base.preserve_state import preserve_state
from skiplens.graph.functional import main_output
from skiplens.trainability.long_run import spread_of_slopes

Score = Callable[[nn.Module, Tensor, Tensor], float]

STEP_RATES = tuple(10.0 ** (-3 + place / 2) for place in range(7))
"""The rates of the one step of plain gradient descent: 0.001 to 1, two a decade."""

KERNEL_SAMPLES = 16
"""Samples of the tangent kernel: one backward pass each."""


def loss_of(model: Callable[[Tensor], Any], inputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy over the last axis of the outputs, or the mean square where targets are real numbers."""
    outputs = main_output(model(inputs))
    if targets.is_floating_point():
        return F.mse_loss(outputs, targets.reshape(outputs.shape))
    return F.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1))


def looking(score: Score) -> Score:
    """`score`, taken in training mode of a model that comes out as it went in."""

    @wraps(score)
    def measured(model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
        with preserve_state(model), torch.enable_grad():
            return float(score(model.train(), inputs, targets))

    return measured


def weights_of(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.ndim > 1 and parameter.requires_grad]


def weight_gradients(model: nn.Module, value: Tensor, *, graph: bool = False) -> list[Tensor]:
    """The gradient of `value` with respect to each weight; zeros where a weight takes no part."""
    weights = weights_of(model)
    found = torch.autograd.grad(value, weights, create_graph=graph, allow_unused=True)
    return [
        torch.zeros_like(weight) if gradient is None else gradient
        for weight, gradient in zip(weights, found, strict=True)
    ]


def parameters(model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """The number of parameters."""
    return float(sum(parameter.numel() for parameter in model.parameters()))


def layers(model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """The number of weights: matrices, filters and embeddings."""
    return float(len(weights_of(model)))


@looking
def gradient_norm(model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """Sum over weights of the norm of the loss's gradient (Abdelfattah et al. 2021)."""
    return sum(float(gradient.norm()) for gradient in weight_gradients(model, loss_of(model, inputs, targets)))


@looking
def snip(model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """Σ |θ · ∂L/∂θ| over the weights (Lee et al. 2019)."""
    gradients = weight_gradients(model, loss_of(model, inputs, targets))
    return sum(float((weight * g).detach().abs().sum()) for weight, g in zip(weights_of(model), gradients, strict=True))


@looking
def grasp(model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """−Σ θ · Hg over the weights, H the Hessian and g the gradient of the loss (Wang et al. 2020)."""
    with sdpa_kernel(SDPBackend.MATH):  # the only attention with second derivatives
        gradients = weight_gradients(model, loss_of(model, inputs, targets), graph=True)
        square = sum(((g * g.detach()).sum() for g in gradients), start=torch.zeros((), device=inputs.device))
        if not square.requires_grad:
            return 0.0
        products = weight_gradients(model, square)
    return -sum(
        float((weight * product).detach().sum()) for weight, product in zip(weights_of(model), products, strict=True)
    )


@looking
def synflow(model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """ln Σ |θ · ∂R/∂θ|, R the sum of outputs of the network with |θ| for an input of ones (Tanaka et al. 2020).

    In float64. Normalisations are passed through, as Abdelfattah et al. do; for tokens the embedding gives the ones.
    """
    twin = copy.deepcopy(model).double().eval()  # no dropout
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.abs_()
    for module in twin.modules():
        if isinstance(module, _NORMALISATIONS):
            # On the copy; a norm of one sample would be an error.
            module.forward = lambda given: given  # type: ignore[method-assign]  # of a copy
    ones = torch.ones_like(inputs[:1], dtype=torch.float64) if inputs.is_floating_point() else inputs[:1]
    with _Embeddings(torch.ones_like):
        outputs = main_output(twin(ones))
    gradients = weight_gradients(twin, outputs.sum())
    total = sum(float((weight * g).detach().abs().sum()) for weight, g in zip(weights_of(twin), gradients, strict=True))
    return math.log(total) if total > 0 else math.nan if math.isnan(total) else -math.inf


@looking
def naswot(model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """ln |K|, K[n, m] the number of activations whose inputs have the same sign on both samples (Mellor et al. 2021).

    The paper has ReLU networks; here any activation counts, by the sign of its input: GELU, SiLU and the like bend at
    zero as ReLU does, and for tanh and sigmoid the sign says on which side of the middle a unit is.
    """
    kernel = torch.zeros(len(inputs), len(inputs), dtype=torch.float64, device=inputs.device)
    with torch.no_grad():
        for given in activation_signs(model, inputs):
            code = given.flatten(1).float()  # counts below 2²⁴ are exact
            kernel += code @ code.T + (1 - code) @ (1 - code).T
    if not kernel.any():
        return math.nan
    sign, value = torch.linalg.slogdet(kernel)
    return float(value) if sign > 0 else -math.inf


@looking
def jacobian_covariance(model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """`spread_of_slopes` of ∂Σf/∂x; of tokens, at the embedding."""
    outputs, leaf = differentiable_outputs(model, inputs)
    if leaf is None:
        return math.nan
    (gradient,) = torch.autograd.grad(outputs.sum(), leaf, materialize_grads=True, allow_unused=True)
    return spread_of_slopes(gradient)


@looking
def zico(model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """Σ over weights of ln Σ E|g| / σ(g), over the two halves of the batch (Li et al. 2023)."""
    half = len(inputs) // 2
    parts = [slice(0, half), slice(half, 2 * half)]
    pairs = zip(*(weight_gradients(model, loss_of(model, inputs[p], targets[p])) for p in parts), strict=True)
    total = 0.0
    for pair in pairs:
        both = torch.stack(pair).double()
        spread = both.std(0, correction=0)
        ratios = (both.abs().mean(0) / spread)[spread > 0].sum()
        total += float(ratios.log()) if ratios > 0 else 0.0
    return total


@looking
def kernel_condition(model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """−log10 of the condition number of the tangent kernel of the summed outputs (Chen et al. 2021), 16 samples."""
    values = torch.linalg.eigvalsh(tangent_kernel(model, inputs[:KERNEL_SAMPLES]))
    if not values.isfinite().all() or values[-1] <= 0:
        return -math.inf
    return -float((values[-1] / values[0].clamp_min(values[-1] * torch.finfo(values.dtype).eps)).log10())


def tangent_kernel(model: nn.Module, inputs: Tensor) -> Tensor:
    """Θ[n, m] = ⟨∇Σf(x_n), ∇Σf(x_m)⟩ over all parameters, in the model's mode, accumulated in float64."""
    chosen = [parameter for parameter in model.parameters() if parameter.requires_grad]
    outputs = main_output(model(inputs)).flatten(1).sum(1)
    rows = []
    for output in outputs:
        found = torch.autograd.grad(output, chosen, retain_graph=True, allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([gradient.flatten() for gradient in found]))
    stacked = torch.stack(rows).double()
    return stacked @ stacked.T


@looking
def one_step(model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """−(loss of the batch after one step of plain gradient descent on it), at the best of `STEP_RATES`."""
    chosen = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(
        loss_of(model, inputs, targets), list(chosen.values()), allow_unused=True, materialize_grads=True
    )
    losses = []
    with torch.no_grad():
        for rate in STEP_RATES:
            moved = {name: p - rate * g for (name, p), g in zip(chosen.items(), found, strict=True)}
            losses.append(float(loss_of(partial(functional_call, model, moved), inputs, targets)))
    return -min((loss for loss in losses if math.isfinite(loss)), default=math.inf)


_NORMALISATIONS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
_ACTIVATIONS = frozenset(
    "relu threshold leaky_relu gelu silu mish hardswish elu softplus tanh sigmoid hardtanh hardsigmoid".split()
)


class _Listening(TorchFunctionMode):
    """Keeps the signs of what torch's activations are called with, as modules or as functions."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.samples = samples
        self.signs: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "").removesuffix("_")  # in place or not
        if name in _ACTIVATIONS and args[0].shape[:1] == (self.samples,):
            self.signs.append(args[0] > 0)
        return func(*args, **(kwargs or {}))


def activation_signs(model: nn.Module, inputs: Tensor) -> list[Tensor]:
    """For every activation of one forward pass, where its input is positive."""
    with _Listening(len(inputs)) as heard:
        model(inputs)
    return heard.signs


class _Embeddings(TorchFunctionMode):
    """Puts something else in the place of what the first look-up of tokens gives, as a module or as a function."""

    def __init__(self, replace: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.replace = replace
        self.replaced: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func in (F.embedding, torch.embedding) and not self.replaced:
            found = self.replace(found)
            self.replaced.append(found)
        return found


def differentiable_outputs(model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
    """The outputs, and the leaf of the graph that stands for the inputs; None where tokens are not embedded."""
    if inputs.is_floating_point():
        given = inputs.detach().clone().requires_grad_()
        return main_output(model(given)), given
    with _Embeddings(lambda found: found.detach().requires_grad_()) as embeddings:
        outputs = main_output(model(inputs))
    return outputs, embeddings.replaced[0] if embeddings.replaced else None


@dataclass(frozen=True)
class Proxy:
    """A score and what it costs, in training steps: a forward pass is a third of one."""

    score: Score
    cost: float


PROXIES = {
    "parameters": Proxy(parameters, 0.0),
    "layers": Proxy(layers, 0.0),
    "gradient norm": Proxy(gradient_norm, 1.0),
    "SNIP": Proxy(snip, 1.0),
    "GraSP": Proxy(grasp, 3.0),
    "SynFlow": Proxy(synflow, 0.0),  # one sample
    "NASWOT": Proxy(naswot, 1 / 3),
    "Jacobian covariance": Proxy(jacobian_covariance, 1.0),
    "ZiCo": Proxy(zico, 1.0),
    "kernel condition": Proxy(kernel_condition, KERNEL_SAMPLES * KERNEL_SAMPLES / 64),
    "loss after one step": Proxy(one_step, 1 + len(STEP_RATES) / 3),
}
