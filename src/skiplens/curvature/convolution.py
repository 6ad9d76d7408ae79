"""Second derivatives of convolutions and batch norm that are as cheap as the first, and those that experts lack.

Torch writes the gradient of the weights' gradient as a convolution with kernels as large as the image, which takes
five times as long as all the rest on a GPU (H200, ResNet-20), and multiplies several vectors one after the other.
"""

from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from skiplens.graph.export import grouped_product
from skiplens.graph.operations import per_axis

_GROUPED: Any = getattr(torch, "_grouped_mm", None)  # rows that go to different experts; torch before 2.8 has none
_AXES = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}
_BATCH_NORM = signature(F.batch_norm)


class PlainConvolutions(TorchFunctionMode):
    """Run a block in which convolutions build the graph of `_Convolution`, and groups of rows are plain products."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function, or its replacement if it is a convolution of a batch with padding in numbers."""
        named = kwargs or {}
        if func in _AXES and torch.is_grad_enabled():
            call = _arguments(_AXES[func], *args, **named)
            if call is not None:
                return _Convolution.apply(*call)
        if func is F.batch_norm and torch.is_grad_enabled():
            return _normed(*args, **named)
        if func is _GROUPED:  # torch has no second derivative of it
            made = grouped_product(*args, *(named[key] for key in ("offs", "bias", "out_dtype") if key in named))
            return func(*args, **named) if made is NotImplemented else made
        return func(*args, **named)


def _arguments(axes: int, input: Tensor, weight: Tensor, bias: Any = None, *options: Any, **named: Any) -> Any:
    """The arguments of `_Convolution`, or None where it does not apply."""
    defaults = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
    given: dict[str, Any] = defaults | dict(zip(defaults, options, strict=False)) | named
    if isinstance(given["padding"], str) or input.ndim != axes + 2:
        return None
    sizes = (per_axis(given[name], axes) for name in ("stride", "padding", "dilation"))
    return input, weight, bias, (*sizes, given["groups"])


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, shape: Any) -> Tensor:
        ctx.save_for_backward(input, weight)
        ctx.shape = shape
        return _convolved(input, weight, bias, shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        input, weight = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[:3])
        # Without a graph to build there is no need of a function of ours, which could not take several vectors at once.
        pull = _Gradients.apply if torch.is_grad_enabled() else _pulled
        found = pull(gradients[0], input, weight, ctx.shape, wanted)
        return *(part if wish else None for part, wish in zip(found, wanted, strict=True)), None


class _Gradients(torch.autograd.Function):
    """The gradients of a convolution; linear in each of its three arguments."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, input: Tensor, weight: Tensor, shape: Any, wanted: list[bool]) -> Any:
        ctx.save_for_backward(gradient, input, weight)
        ctx.shape = shape
        ctx.set_materialize_grads(False)
        return _pulled(gradient, input, weight, shape, wanted)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_input: Tensor | None, to_weight: Tensor | None, to_bias: Tensor | None) -> Any:
        gradient, input, weight = ctx.saved_tensors
        shape, terms = ctx.shape, []
        found: list[Tensor | None] = [None, None, None]
        if to_input is not None:
            terms.append(_convolved(to_input, weight, None, shape))
            found[2] = _pulled(gradient, to_input, weight, shape, [False, True, False])[1]
        if to_weight is not None:
            terms.append(_convolved(input, to_weight, None, shape))
            if ctx.needs_input_grad[1]:
                found[1] = _pulled(gradient, input, to_weight, shape, [True, False, False])[0]
        if to_bias is not None:
            terms.append(to_bias.reshape(-1, *(1,) * (input.ndim - 2)).expand_as(gradient))
        found[0] = sum(terms[1:], terms[0]) if terms else None
        return *found, None, None


def _convolved(input: Tensor, weight: Tensor, bias: Tensor | None, shape: Any) -> Tensor:
    stride, padding, dilation, groups = shape
    none = [0] * len(stride)
    return torch.ops.aten.convolution(input, weight, bias, stride, padding, dilation, False, none, groups)


def _pulled(gradient: Tensor, input: Tensor, weight: Tensor, shape: Any, wanted: list[bool]) -> Any:
    stride, padding, dilation, groups = shape
    none, sizes = [0] * len(stride), [weight.shape[0]] if wanted[2] else None
    return torch.ops.aten.convolution_backward(
        gradient, input, weight, sizes, stride, padding, dilation, False, none, groups, wanted
    )


def _normed(*args: Any, **named: Any) -> Tensor:
    """Batch norm: second derivatives take torch some thirty passes over the samples, and a dozen here."""
    given = _BATCH_NORM.bind(*args, **named)
    given.apply_defaults()
    input, mean, var, weight, bias, training, _, eps = given.arguments.values()
    alike = len({part.dtype for part in (input, mean, var, weight, bias) if part is not None}) == 1
    several = input.ndim > 1 and input.numel() > input.shape[1]
    if weight is None or bias is None or not (alike and several and eps > 0) or (mean is None and not training):
        return F.batch_norm(*args, **named)  # which may refuse it
    if training:
        return _Norm.apply(input, weight, bias, mean, var, *given.args[-2:])
    scale = weight * torch.rsqrt(var + eps)
    return _combined(bias - mean * scale, (scale, input))


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, *rest: Any) -> Tensor:
        bias, mean, var, momentum, eps = rest
        normed, *own = torch.native_batch_norm(input, weight, bias, mean, var, True, momentum, eps)
        ctx.save_for_backward(input, weight, *own)
        return normed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        pull: Any = _NormGradients.apply if torch.is_grad_enabled() else _pulled_norm
        return *pull(gradients[0], *ctx.saved_tensors), *[None] * 4


class _NormGradients(torch.autograd.Function):
    """The gradients of a batch norm: γ s Pg, ⟨g, x̂⟩ and Σ g, with x̂ = s (x − μ).

    P takes away of a vector its mean and its part along x̂.
    """

    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> Any:
        found = _pulled_norm(*given)
        ctx.save_for_backward(*given, *found[1:])
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_input: Tensor, to_weight: Tensor, to_bias: Tensor) -> Any:
        gradient, input, weight, mean, scale, along, total = ctx.saved_tensors
        axes, each = [axis for axis in range(input.ndim) if axis != 1], len(mean) / input.numel()
        pulled, pulled_along, _ = _pulled_norm(to_input, input, torch.ones_like(weight), mean, scale)
        by_weight, slope = (gradient * pulled).sum(axes), scale * to_weight
        by_gradient, by_input = _combined(to_bias - slope * mean, (weight, pulled), (slope, input)), None
        if ctx.needs_input_grad[1]:
            share = weight * scale * each
            slope = slope - share * scale * pulled_along
            tilt = -(slope * along * each + share * by_weight) * scale
            rest = -slope * total * each - tilt * mean
            by_input = _combined(rest, (-share * along, pulled), (slope, gradient), (tilt, input))
        return by_gradient, by_input, by_weight, None, None


def _combined(constant: Tensor, *terms: tuple[Tensor, Tensor]) -> Tensor:
    """The sum of values, each times a number of its channel."""
    found = constant.reshape(shape := (-1, *[1] * (terms[0][1].ndim - 2)))
    for factor, values in terms:
        found = factor.reshape(shape) * values + found
    return found


def _pulled_norm(gradient: Tensor, input: Tensor, weight: Tensor, mean: Tensor, scale: Tensor) -> Any:
    known = (None, None, mean, scale, True, 0.0)  # no running statistics
    return torch.ops.aten.native_batch_norm_backward(gradient, input, weight, *known, [True, True, True])
