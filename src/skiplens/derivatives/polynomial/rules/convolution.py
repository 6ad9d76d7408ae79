"""Convolutions of stacks: in double precision on the CPU as patches times the kernel, elsewhere as torch does them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from skiplens.derivatives.patches import windows
from skiplens.derivatives.polynomial.rules.affine import Affine
from skiplens.derivatives.polynomial.step import Slot, Stacks, Step
from skiplens.residual.operations import operation

_PATCH_BYTES = 2**21  # of the patches that a thread makes at once: they stay in its cache until they are multiplied
_PLAIN = {"aten.conv1d", "aten.conv2d", "aten.conv3d"}


@dataclass(frozen=True)
class Convolving(Affine):
    """``conv(x, kernel, bias, stride, padding, dilation, groups)`` and its transposed forms."""

    terms: tuple[int, ...] = (2,)
    factors: tuple[int, ...] = (0, 1)

    def _entries(self, step: Step, still: dict[Slot, Any]) -> Stacks:
        if not _is_quicker_by_patches(step):
            return super()._entries(step, still)
        images = by_patches(step, step.stack.flatten(0, 1))
        return images.unflatten(0, step.stack.shape[:2])


def by_patches(step: Step, images: Tensor) -> Tensor:
    """Any number of images convolved as the step does it, without the bias.

    torch has no convolution of its own in double precision: it writes the patches of all images to memory, slowly, and
    multiplies image by image. Here some images at a time are unfolded into the cache and multiplied together.
    """
    out = images.new_empty(len(images), *step.value.shape[1:])
    at_once = min(len(images), _images_at_once(images, step.arguments[1], out))
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
        groups, positions = step.argument(6, 1), step.value.shape[2:]
        padded, self.inside = _with_margins(images, padding)
        self.seen = windows(padded, kernel.shape[2:], stride, dilation).movedim(0, 1 + dims)
        self.patches = images.new_empty(self.seen.shape)
        self.kernels = kernel.reshape(groups, len(kernel) // groups, -1)
        self.products = images.new_empty(groups, self.kernels.shape[1], len(images) * positions.numel())
        self.result = self.products.view(len(kernel), len(images), *positions).transpose(0, 1)

    def convolve(self, images: Tensor, out: Tensor) -> None:
        """Write the convolved images to `out`; there are a multiple of so many as the bench is for."""
        columns = self.patches.view(len(self.kernels), self.kernels.shape[2], -1)
        for some, place in zip(images.split(self.inside.shape[0]), out.split(self.inside.shape[0]), strict=True):
            self.inside.copy_(some)
            self.patches.copy_(self.seen)
            torch.bmm(self.kernels, columns, out=self.products)
            place.copy_(self.result)


def _is_quicker_by_patches(step: Step) -> bool:
    """Whether torch would unfold each image; what it does otherwise it does well."""
    image, kernel = step.arguments[:2]
    if operation(step.node) not in _PLAIN or tuple(step.stacks) != ((0,),) or image.ndim != kernel.ndim:
        return False
    doubles = step.stack.dtype == kernel.dtype == torch.float64 and kernel.device.type == "cpu"
    is_unfolded = math.prod(kernel.shape[2:]) > 1 and not isinstance(step.argument(4), str)
    return doubles and is_unfolded and not torch.is_grad_enabled()  # gradients of the kernel are torch's work


def _with_margins(images: Tensor, padding: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Zeros for so many images with margins, and the view of them inside the margins."""
    sizes = list(zip(images.shape[2:], padding, strict=True))
    padded = images.new_zeros(*images.shape[:2], *(size + 2 * margin for size, margin in sizes))
    inside = padded
    for axis, (size, margin) in enumerate(sizes):
        inside = inside.narrow(axis + 2, margin, size)
    return padded, inside


def _images_at_once(images: Tensor, kernel: Tensor, out: Tensor) -> int:
    patch_bytes = images.shape[1] * kernel.shape[2:].numel() * out.shape[2:].numel() * images.element_size()
    return max(1, _PATCH_BYTES * torch.get_num_threads() // patch_bytes)


def _each(amounts: Any, dims: int) -> list[int]:
    """An amount for each axis of space, given one for all or a list that may have one entry for all."""
    listed = list(amounts) if isinstance(amounts, list | tuple) else [amounts]
    return listed * dims if len(listed) == 1 else listed
