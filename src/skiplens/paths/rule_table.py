"""Which rule freezes which operation; what is not listed has no frozen form."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from skiplens.graph.operations import CONVOLUTIONS, operation, windows
from skiplens.paths.rules import Affine, Attention, Extreme, MaxPool, Power, Secant, Tangent
from skiplens.paths.step import OfOne, Rule, Slot, Stacks, Step, over_entries, plus_constant

LINEAR = """
    view _unsafe_view reshape
    alias clone contiguous detach lift_fresh_copy _to_copy to flatten unflatten permute transpose t squeeze unsqueeze
    channel_shuffle pixel_shuffle pixel_unshuffle movedim roll flip rot90 slice select narrow index index_select gather
    split split_with_sizes chunk unbind expand repeat repeat_interleave tril triu diagonal take_along_dim unfold im2col
    col2im neg mean sum cumsum avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d upsample_nearest1d upsample_nearest2d
    upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d
    reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d
""".split()
"""Linear in their first argument, and nothing is added."""

SECANT = """
    relu leaky_relu prelu abs gelu silu mish tanh sin tan sinh asinh atan erf expm1 log1p elu selu celu hardswish
    hardshrink softshrink tanhshrink square rrelu dropout
""".split()
"""φ(0) = 0."""

TANGENT = "relu6 hardtanh clamp clamp_min clamp_max hardsigmoid threshold".split()
"""Piecewise linear with pieces that do not go through the origin."""

_PATCH_BYTES = 2**21  # unfolded at once: stays in the cache until it is multiplied

_PLAIN = {"aten.conv1d", "aten.conv2d", "aten.conv3d"}


@dataclass(frozen=True)
class Convolving(Affine):
    """``conv(x, kernel, bias, stride, padding, dilation, groups)`` and its transposed forms."""

    is_fresh = True
    terms: tuple[int, ...] = (2,)
    factors: tuple[int, ...] = (0, 1)

    def _entries(self, step: Step, still: dict[Slot, Any]) -> Stacks:
        if not _is_quicker_by_patches(step):
            return super()._entries(step, still)
        images = _convolved(step, step.stack.flatten(0, 1))
        return images.unflatten(0, step.stack.shape[:2])


def _is_quicker_by_patches(step: Step) -> bool:
    """Whether torch would unfold each image, and all of them together do not stay in the cache."""
    image, kernel = step.arguments[:2]
    if operation(step.node) not in _PLAIN or tuple(step.stacks) != ((0,),) or image.ndim != kernel.ndim:
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
    """Any number of images convolved as the step does it, without the bias."""
    out = images.new_empty(len(images), *step.value.shape[1:])
    at_once = _images_at_once(step)
    whole = len(images) - len(images) % at_once
    for part, place in ((images[:whole], out[:whole]), (images[whole:], out[whole:])):
        if len(part):
            _Bench(step, part[:at_once]).convolve(part, place)
    return out


class _Bench:
    """Memory for some images on their way through a convolution, used again and again."""

    def __init__(self, step: Step, images: Tensor) -> None:
        kernel, dims = step.arguments[1], step.arguments[1].ndim - 2
        stride, padding, dilation = (_each(step.argument(3 + i, default), dims) for i, default in enumerate((1, 0, 1)))
        padded, self.inside = _with_margins(images, padding)
        self.seen = windows(padded, kernel.shape[2:], stride, dilation).movedim(0, 1 + dims)
        self.patches = images.new_empty(self.seen.shape)
        self.kernel = kernel.flatten(1)
        self.products = images.new_empty(len(kernel), len(images), *step.value.shape[2:])

    def convolve(self, images: Tensor, out: Tensor) -> None:
        """Write the convolved images to `out`; there are a multiple of as many as the bench is for."""
        at_once, entries = len(self.inside), self.kernel.shape[1]
        columns, products = self.patches.view(entries, -1), self.products.flatten(1)
        for some, place in zip(images.split(at_once), out.split(at_once), strict=True):
            self.inside.copy_(some)
            self.patches.copy_(self.seen)
            torch.mm(self.kernel, columns, out=products)
            place.copy_(self.products.transpose(0, 1))


def _with_margins(images: Tensor, padding: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Zeros for so many images with margins, and the view of them inside the margins."""
    sizes = list(zip(images.shape[2:], padding, strict=True))
    padded = images.new_zeros(*images.shape[:2], *(size + 2 * margin for size, margin in sizes))
    inside = padded
    for axis, (size, margin) in enumerate(sizes):
        inside = inside.narrow(axis + 2, margin, size)
    return padded, inside


def _each(amounts: Any, dims: int) -> list[int]:
    """An amount for each axis of space, given one for all or a list that may have one entry for all."""
    listed = list(amounts) if isinstance(amounts, list | tuple) else [amounts]
    return listed * dims if len(listed) == 1 else listed


_AFFINE = {
    **{f"aten.{name}": Affine(terms=(0,)) for name in LINEAR},
    **{name: Convolving() for name in CONVOLUTIONS},
    "aten.linear": Affine(terms=(2,), factors=(0, 1)),
    **{f"aten.{name}": Affine(factors=(0, 1)) for name in ("mul", "matmul", "mm", "bmm", "mv", "dot", "outer")},
    **{f"aten.{name}": Affine(terms=(0, 1)) for name in ("add", "sub", "rsub")},
    **{f"aten.{name}": Affine(terms=(0,), factors=(1, 2)) for name in ("addmm", "addmv", "addbmm", "baddbmm")},
    **{f"aten.{name}": Affine(terms=(0,)) for name in ("cat", "stack")},
    "aten.addcmul": Affine(terms=(0,), factors=(1, 2)),
    "aten.addcdiv": Affine(terms=(0,), factors=(1,)),
    "aten.lerp": Affine(terms=(0, 1)),
    "aten.div": Affine(factors=(0,)),
    "aten.einsum": Affine(factors=(1,)),
    "aten.where": Affine(terms=(1, 2)),
    "aten.masked_fill": Affine(terms=(0, 2)),
    "aten.constant_pad_nd": Affine(terms=(0, 2)),
    "aten.pad": Affine(terms=(0, 3)),
}


@dataclass(frozen=True, eq=False)
class Normalisation:
    """(x − centre(x)) · scale · weight + bias, over groups of numbers.

    Attributes:
        shape: Shape of x in which a group is the whole of `axes`.
        axes: Axes over which mean and variance are taken.
        centred: Whether the mean is removed.
        epsilon: Added to the variance.
        weight: Learned factor, to be broadcast against x, or None.
        bias: Learned shift, to be broadcast against x, or None.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    centred: bool
    epsilon: float
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

    @abstractmethod
    def read(self, step: Step) -> Normalisation:
        """The normalisation that a step carries out."""

    def apply(self, step: Step, with_constants: bool) -> Tensor:
        """Each entry centred and times the frozen scale; the learned shift goes to entry 0."""
        form, x = self.read(step), step.arguments[0]
        scale = form.scale(x)
        stack = over_entries(lambda entry: form.scaled(entry, scale), (step.stack,))
        return plus_constant(stack, form.bias) if with_constants and form.bias is not None else stack


@dataclass(frozen=True)
class LayerNorm(Normalising):
    """``layer_norm(x, shape, weight, bias, epsilon)``."""

    def read(self, step: Step) -> Normalisation:
        """Groups are the last axes."""
        x, shape = step.arguments[:2]
        axes = tuple(range(x.ndim - len(shape), x.ndim))
        weight, bias, epsilon = step.argument(2), step.argument(3), step.argument(4, 1e-5)
        return Normalisation(tuple(x.shape), axes, True, epsilon, weight, bias)


@dataclass(frozen=True)
class RMSNorm(Normalising):
    """``rms_norm(x, shape, weight, epsilon)``."""

    def read(self, step: Step) -> Normalisation:
        """Groups are the last axes; nothing is centred."""
        x, shape = step.arguments[:2]
        epsilon = step.argument(3)
        epsilon = torch.finfo(x.dtype).eps if epsilon is None else epsilon
        axes = tuple(range(x.ndim - len(shape), x.ndim))
        return Normalisation(tuple(x.shape), axes, False, epsilon, step.argument(2), None)


@dataclass(frozen=True)
class GroupNorm(Normalising):
    """``group_norm(x, groups, weight, bias, epsilon)``."""

    def read(self, step: Step) -> Normalisation:
        """Groups are some channels of one sample."""
        x, groups = step.arguments[:2]
        weight, bias = (channels(step.argument(position), x) for position in (2, 3))
        return Normalisation((len(x), groups, -1), (2,), True, step.argument(4, 1e-5), weight, bias)


@dataclass(frozen=True)
class BatchNorm(Normalising):
    """Batch norm with the statistics of the batch: its centring is a linear operator on the batch.

    Attributes:
        epsilon_at: Position of ε, which the forms of the operation have in different places.
    """

    epsilon_at: int = 7

    def read(self, step: Step) -> Normalisation:
        """Groups are one channel of all samples."""
        x = step.arguments[0]
        weight, bias = (channels(step.argument(position), x) for position in (1, 2))
        axes = (0, *range(2, x.ndim))
        return Normalisation(tuple(x.shape), axes, True, step.arguments[self.epsilon_at], weight, bias)


@dataclass(frozen=True)
class RunningBatchNorm(OfOne):
    """Batch norm with running statistics: a factor for each channel, and a shift that is a constant."""

    curves = False
    is_fresh = True
    epsilon_at: int = 6

    def apply(self, step: Step, with_constants: bool) -> Tensor:
        """Each entry times the channel's factor; the shift goes to entry 0."""
        weight, bias, mean, variance = (channels(tensor, step.arguments[0]) for tensor in step.arguments[1:5])
        assert mean is not None and variance is not None, "batch norm without batch statistics has running ones"
        factor = (variance + step.arguments[self.epsilon_at]).rsqrt()
        factor = factor if weight is None else factor * weight
        stack = step.scaled(factor)
        shift = -mean * factor if bias is None else bias - mean * factor
        return plus_constant(stack, shift) if with_constants else stack


def channels(vector: Any, x: Tensor) -> Tensor | None:
    """A number for each channel, to be broadcast against x (samples, channels, …)."""
    return None if vector is None else vector.reshape(-1, *(1,) * (x.ndim - 2))


_NORMALISING: dict[str, Rule] = {
    "aten.layer_norm": LayerNorm(),
    "aten.native_layer_norm": LayerNorm(),
    "aten.rms_norm": RMSNorm(),
    "aten.group_norm": GroupNorm(),
    "aten._native_batch_norm_legit_functional": BatchNorm(),
    "aten._native_batch_norm_legit": BatchNorm(epsilon_at=-1),
    "aten._native_batch_norm_legit_no_training": RunningBatchNorm(),
}

_CHOOSING: dict[str, Rule] = {
    "aten.max_pool1d": MaxPool(torch.ops.aten.max_pool1d_with_indices, 1),
    "aten.max_pool2d": MaxPool(torch.ops.aten.max_pool2d_with_indices, 2),
    "aten.max_pool3d": MaxPool(torch.ops.aten.max_pool3d_with_indices, 3),
    "aten.max_pool2d_with_indices": MaxPool(torch.ops.aten.max_pool2d_with_indices, 2),
    "aten.max_pool3d_with_indices": MaxPool(torch.ops.aten.max_pool3d_with_indices, 3),
    "aten.adaptive_max_pool2d": MaxPool(torch.ops.aten.adaptive_max_pool2d, 2),
    "aten.amax": Extreme(),
    "aten.amin": Extreme(largest=False),
    "aten.max": Extreme(),
    "aten.min": Extreme(largest=False),
}

_TABLE: dict[str, Rule] = {
    **_AFFINE,
    **_NORMALISING,
    **_CHOOSING,
    **{f"aten.{name}": Secant() for name in SECANT},
    **{f"aten.{name}": Tangent() for name in TANGENT},
    "aten.pow": Power(),
    "aten.scaled_dot_product_attention": Attention(),
}


def rule_of(node: fx.Node) -> Rule | None:
    """The rule that freezes the operation of a node; None where it has no frozen form."""
    name = operation(node)
    if name in ("aten.batch_norm", "aten.instance_norm"):
        own_statistics = node.args[5]
        moving = InstanceNorm() if name == "aten.instance_norm" else BatchNorm()
        return moving if own_statistics else RunningBatchNorm(epsilon_at=7)
    if node.kwargs.get("rounding_mode"):
        return None
    return _TABLE.get(name)


@dataclass(frozen=True)
class InstanceNorm(Normalising):
    """``instance_norm(x, weight, bias, mean, variance, own statistics, momentum, epsilon, …)``."""

    def read(self, step: Step) -> Normalisation:
        """Groups are one channel of one sample."""
        x = step.arguments[0]
        weight, bias = (channels(step.argument(position), x) for position in (1, 2))
        return Normalisation(tuple(x.shape), tuple(range(2, x.ndim)), True, step.arguments[7], weight, bias)
