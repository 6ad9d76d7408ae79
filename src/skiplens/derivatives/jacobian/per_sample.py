"""Jacobians of each sample by itself, all samples at once; and whether samples depend on each other at all."""

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.derivatives.jacobian.linearised import Linearised


def keeps_samples(linearised: Linearised, samples: int) -> bool:
    """Whether the first axis of input and output is the samples."""
    shapes = (linearised.input_shape, linearised.output_shape)
    return all(len(shape) > 0 and shape[0] == samples for shape in shapes)


def couples_samples(linearised: Linearised, samples: int, generator: torch.Generator) -> bool:
    """Whether some sample's output depends on another sample's input.

    Samples are split in two by each bit of their number, so that any two are apart in some split; the gradient of a
    random combination of one half's outputs must not reach the other half's inputs.
    """
    number = torch.arange(samples, device=linearised.device)
    halves = [(number >> bit) & 1 == side for bit in range((samples - 1).bit_length()) for side in (0, 1)]
    if not halves:
        return False
    shape = (len(halves), samples, linearised.rows // samples)
    draws = torch.randn(shape, generator=generator, device=generator.device).to(linearised.device, linearised.dtype)
    mask = torch.stack(halves)[:, :, None]
    gradients = linearised.adjoint((draws * mask).flatten(1)).reshape(len(halves), samples, -1)
    return bool((gradients * ~mask).abs().max() > 1e-3 * torch.finfo(linearised.dtype).eps * gradients.abs().max())


def sample_jacobians(linearised: Linearised, samples: int) -> Float[Tensor, "samples outputs inputs"]:
    """The Jacobian of each sample's output by its own input, for a function that does not couple samples.

    One product serves all samples: the same unit vector in every sample gives that row (or column) of all Jacobians.
    """
    outputs, inputs = linearised.rows // samples, linearised.columns // samples
    by_rows = outputs <= inputs
    size = outputs if by_rows else inputs
    product = linearised.adjoint if by_rows else linearised.forward
    whole = torch.empty((samples, outputs, inputs), dtype=linearised.dtype, device=linearised.device)
    step = max(1, 2**24 // (samples * size))
    for start in range(0, size, step):
        units = torch.eye(size, dtype=linearised.dtype, device=linearised.device)[start : start + step]
        found = product(units[:, None, :].expand(-1, samples, -1).flatten(1)).reshape(len(units), samples, -1)
        if by_rows:
            whole[:, start : start + step] = found.transpose(0, 1)
        else:
            whole[:, :, start : start + step] = found.permute(1, 2, 0)
    return whole


def whole_jacobian(linearised: Linearised) -> Float[Tensor, "rows columns"]:
    """The Jacobian of all outputs by all inputs."""
    return sample_jacobians(linearised, 1)[0]
