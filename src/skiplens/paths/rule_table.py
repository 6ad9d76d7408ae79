"""Which rule freezes which operation; what is not listed has no frozen form."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from skiplens.graph.operations import CONVOLUTIONS, operation, per_axis, windows
from skiplens.paths.rules import Affine, Attention, Extreme, MaxPool, OfOne, Power, Rule, Secant, Tangent
from skiplens.paths.step import Slot, Stacks, Step, over_entries, plus_constant

LINEAR = """
    view _unsafe_view reshape type_as expand_as view_as reshape_as cat stack
    alias clone contiguous detach lift_fresh_copy _to_copy to flatten unflatten permute transpose t squeeze unsqueeze
    channel_shuffle pixel_shuffle pixel_unshuffle movedim roll flip rot90 slice select narrow index index_select gather
    split split_with_sizes chunk unbind expand repeat repeat_interleave tril triu diagonal take_along_dim unfold im2col
    col2im neg mean sum cumsum avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d upsample_nearest1d upsample_nearest2d
    upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d
    reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d view_as_real view_as_complex real fft_fft
    fft_fft2 fft_fftn fft_ifft fft_ifft2 fft_ifftn fft_rfft fft_rfft2 fft_rfftn fft_irfft fft_irfft2 fft_irfftn
""".split()  # linear in their first argument, and nothing is added

SECANT = """
    relu leaky_relu prelu abs gelu silu mish tanh sin tan sinh asinh atan erf expm1 log1p elu selu celu hardswish
    hardshrink softshrink tanhshrink square rrelu dropout
""".split()  # φ(0) = 0

# Piecewise linear with pieces that do not go through the origin.
TANGENT = "relu6 hardtanh clamp clamp_min clamp_max hardsigmoid threshold".split()
_PATCH_BYTES = 2**21  # unfolded at once: stays in the cache until it is multiplied


@dataclass(frozen=True)
class Convolving(Affine):
    """``conv(x, kernel, bias, stride, padding, dilation, groups)`` and its transposed forms."""

    is_fresh = True
    terms: tuple[int, ...] = (2,)
    factors: tuple[int, ...] = (0, 1)

    def _entries(self, step: Step, still: dict[Slot, Any]) -> Stacks:
        if not _is_quicker_by_patches(step):
            return super()._entries(step, still)
        return _convolved(step, step.stack.flatten(0, 1)).unflatten(0, step.stack.shape[:2])


def _is_quicker_by_patches(step: Step) -> bool:
    """Whether torch would unfold each image, and all of them together do not stay in the cache."""
    image, kernel = step.arguments[:2]
    plain = operation(step.node) in ("aten.conv1d", "aten.conv2d", "aten.conv3d")
    if not plain or tuple(step.stacks) != ((0,),) or image.ndim != kernel.ndim:
        return False
    doubles = step.stack.dtype == kernel.dtype == torch.float64 and kernel.device.type == "cpu"
    is_unfolded = kernel.shape[2:].numel() > 1 and step.argument(6, 1) == 1 and not isinstance(step.argument(4), str)
    is_large = step.stack.shape[:2].numel() > _images_at_once(step)
    alone = torch.get_num_threads() == 1 and not torch.is_grad_enabled()  # gradients of the kernel are torch's work
    return doubles and is_unfolded and is_large and alone


def _images_at_once(step: Step) -> int:
    patches = step.arguments[1][0].numel() * step.value.shape[2:].numel()
    return max(1, _PATCH_BYTES // (patches * step.stack.element_size()))


def _convolved(step: Step, images: Tensor) -> Tensor:
    """Any number of images convolved as the step does it, without the bias: some at a time, in the same memory."""
    out = images.new_empty(len(images), *step.value.shape[1:])
    at_once = _images_at_once(step)
    whole = len(images) - len(images) % at_once
    for part, place in ((images[:whole], out[:whole]), (images[whole:], out[whole:])):
        if len(part):
            _convolve_some(step, part, place, min(at_once, len(part)))
    return out


def _convolve_some(step: Step, images: Tensor, out: Tensor, at_once: int) -> None:
    """Write the convolved images to `out`; there are a multiple of `at_once`."""
    kernel, sizes = step.arguments[1], images.shape[2:]
    dims = len(sizes)
    stride, padding, dilation = (per_axis(step.argument(3 + i, default), dims) for i, default in enumerate((1, 0, 1)))
    room = [size + 2 * margin for size, margin in zip(sizes, padding, strict=True)]
    with_margins = images.new_zeros(at_once, images.shape[1], *room)
    inside = with_margins
    for axis, (size, margin) in enumerate(zip(sizes, padding, strict=True)):
        inside = inside.narrow(axis + 2, margin, size)
    seen = windows(with_margins, kernel.shape[2:], stride, dilation).movedim(0, 1 + dims)
    patches = images.new_empty(seen.shape)
    flat = kernel.flatten(1)
    products = images.new_empty(len(kernel), at_once, *step.value.shape[2:])
    for some, place in zip(images.split(at_once), out.split(at_once), strict=True):
        inside.copy_(some)
        patches.copy_(seen)
        torch.mm(flat, patches.view(flat.shape[1], -1), out=products.flatten(1))
        place.copy_(products.transpose(0, 1))


@dataclass(frozen=True, eq=False)
class Normalisation:
    """(x − centre(x)) · scale · weight + bias, over groups of numbers; weight and bias are broadcast against x."""

    shape: tuple[int, ...]  # of x in which a group is the whole of `axes`
    axes: tuple[int, ...]  # over which mean and variance are taken
    centred: bool  # whether the mean is removed
    epsilon: float  # added to the variance
    weight: Tensor | None
    bias: Tensor | None

    def centre(self, x: Tensor) -> Tensor:
        """X in groups, without the mean of its group."""
        grouped = x.reshape(self.shape)
        return grouped - grouped.mean(self.axes, keepdim=True) if self.centred else grouped

    def scale(self, x: Tensor) -> Tensor:
        """One over the standard deviation of each group."""
        return (self.centre(x).square().mean(self.axes, keepdim=True) + self.epsilon).rsqrt()

    def scaled(self, x: Tensor, scale: Tensor) -> Tensor:
        """X centred, times a scale and the learned factor."""
        result = (self.centre(x) * scale).reshape(x.shape)
        return result if self.weight is None else result * self.weight

    def __call__(self, x: Tensor) -> Tensor:
        """X normalised."""
        result = self.scaled(x, self.scale(x))
        return result if self.bias is None else result + self.bias


@dataclass(frozen=True)
class Normalising(OfOne):
    """Statistics of the argument itself: layer, group, instance and root-mean-square norms, batch norm in training."""

    curves = True
    read: Callable[[Step], Normalisation]  # the normalisation that a step carries out

    def apply(self, step: Step, with_constants: bool) -> Tensor:
        """Each entry centred and times the frozen scale; the learned shift goes to entry 0."""
        form, x = self.read(step), step.arguments[0]
        scale = form.scale(x)
        stack = over_entries(lambda entry: form.scaled(entry, scale), (step.stack,))
        return plus_constant(stack, form.bias) if with_constants and form.bias is not None else stack


def _of_last_axes(step: Step, centred: bool) -> Normalisation:
    """``layer_norm(x, shape, weight, bias, epsilon)``, or ``rms_norm(x, shape, weight, epsilon)``, not `centred`."""
    x, shape = step.arguments[:2]
    epsilon, bias = (step.argument(4, 1e-5), step.argument(3)) if centred else (step.argument(3), None)
    epsilon = torch.finfo(x.dtype).eps if epsilon is None else epsilon
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    return Normalisation(tuple(x.shape), axes, centred, epsilon, step.argument(2), bias)


def _group_norm(step: Step) -> Normalisation:
    """``group_norm(x, groups, weight, bias, epsilon)``: groups are some channels of one sample."""
    x, groups = step.arguments[:2]
    weight, bias = (_channels(step.argument(position), x) for position in (2, 3))
    return Normalisation((len(x), groups, -1), (2,), True, step.argument(4, 1e-5), weight, bias)


def _by_channel(step: Step, first: int = 0, epsilon_at: int = 7) -> Normalisation:
    """Groups of one channel, of all samples (batch norm with its own statistics) or of each (instance norm, `first` 2).

    The centring of batch norm is a linear operator on the batch; its forms have ε in different places.
    """
    x = step.arguments[0]
    weight, bias = (_channels(step.argument(position), x) for position in (1, 2))
    axes = (*range(first, 1), *range(2, x.ndim))
    return Normalisation(tuple(x.shape), axes, True, step.arguments[epsilon_at], weight, bias)


@dataclass(frozen=True)
class RunningBatchNorm(OfOne):
    """Batch norm with running statistics: a factor for each channel, and a shift that is a constant."""

    curves = False
    is_fresh = True
    epsilon_at: int = 6

    def apply(self, step: Step, with_constants: bool) -> Tensor:
        """Each entry times the channel's factor; the shift goes to entry 0."""
        weight, bias, mean, variance = (_channels(tensor, step.arguments[0]) for tensor in step.arguments[1:5])
        assert mean is not None and variance is not None, "batch norm without batch statistics has running ones"
        factor = (variance + step.arguments[self.epsilon_at]).rsqrt()
        factor = factor if weight is None else factor * weight
        shift = -mean * factor if bias is None else bias - mean * factor
        return plus_constant(step.scaled(factor), shift) if with_constants else step.scaled(factor)


def _channels(vector: Any, x: Tensor) -> Tensor | None:
    """A number for each channel, to be broadcast against x (samples, channels, …)."""
    return None if vector is None else vector.reshape(-1, *(1,) * (x.ndim - 2))


_TABLE: dict[str, Rule] = {
    **{f"aten.{name}": Affine(terms=(0,)) for name in LINEAR},
    **{name: Convolving() for name in CONVOLUTIONS},
    "aten.linear": Affine(terms=(2,), factors=(0, 1)),
    **{f"aten.{name}": Affine(factors=(0, 1)) for name in ("mul", "matmul", "mm", "bmm", "mv", "dot", "outer")},
    **{f"aten.{name}": Affine(terms=(0, 1)) for name in ("add", "sub", "rsub", "slice_scatter", "select_scatter")},
    **{
        f"aten.{name}": Affine(terms=(0,), factors=(1, 2))
        for name in ("addmm", "addmv", "addbmm", "baddbmm", "addcmul")
    },
    "aten.addcdiv": Affine(terms=(0,), factors=(1,)),
    "aten.lerp": Affine(terms=(0, 1)),
    "aten.div": Affine(factors=(0,)),
    "aten.einsum": Affine(factors=(1,)),
    "aten.where": Affine(terms=(1, 2)),
    **{f"aten.{name}": Affine(terms=(0, 2)) for name in ("masked_fill", "constant_pad_nd")},
    "aten.pad": Affine(terms=(0, 3)),
    **{f"aten.{name}layer_norm": Normalising(partial(_of_last_axes, centred=True)) for name in ("", "native_")},
    "aten.rms_norm": Normalising(partial(_of_last_axes, centred=False)),
    "aten.group_norm": Normalising(_group_norm),
    "aten._native_batch_norm_legit_functional": Normalising(_by_channel),
    "aten._native_batch_norm_legit": Normalising(partial(_by_channel, epsilon_at=-1)),
    "aten._native_batch_norm_legit_no_training": RunningBatchNorm(),
    "aten.max_pool1d": MaxPool(torch.ops.aten.max_pool1d_with_indices, 1),
    **{f"aten.max_pool2d{end}": MaxPool(torch.ops.aten.max_pool2d_with_indices, 2) for end in ("", "_with_indices")},
    **{f"aten.max_pool3d{end}": MaxPool(torch.ops.aten.max_pool3d_with_indices, 3) for end in ("", "_with_indices")},
    "aten.adaptive_max_pool2d": MaxPool(torch.ops.aten.adaptive_max_pool2d, 2),
    **{f"aten.{name}": Extreme(largest="max" in name) for name in ("amax", "amin", "max", "min")},
    **{f"aten.{name}": Secant() for name in SECANT},
    **{f"aten.{name}": Tangent() for name in TANGENT},
    "aten.pow": Power(),
    "aten.scaled_dot_product_attention": Attention(),
}


def rule_of(node: fx.Node) -> Rule | None:
    """The rule that freezes the operation of a node; None where it has no frozen form."""
    name = operation(node)
    if name in ("aten.batch_norm", "aten.instance_norm"):
        own_statistics, first = node.args[5], 2 if name == "aten.instance_norm" else 0
        return Normalising(partial(_by_channel, first=first)) if own_statistics else RunningBatchNorm(epsilon_at=7)
    return None if node.kwargs.get("rounding_mode") else _TABLE.get(name)
