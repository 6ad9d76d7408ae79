"""Convolutions of stacks: on one thread in double precision as patches times the kernel, elsewhere as torch does them.

torch has no convolution of its own in double precision: it writes the patches of all images to memory, slowly, and
multiplies image by image. Here some images at a time are unfolded into the cache and multiplied together, which takes
two thirds of the time. Several threads that have to wait for each other at each of these small steps would lose more
than that, and torch lets each of them have images of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from skiplens.derivatives.patches import windows
from skiplens.derivatives.polynomial.rules.affine import Affine
from skiplens.derivatives.polynomial.step import Slot, Stacks, Step
from skiplens.residual.operations import operation

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
