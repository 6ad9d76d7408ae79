"""Samples as small pictures inside of a page: PNG files written out as addresses, so that nothing is loaded."""

import base64
import io
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from skiplens.base.optional_imports import optional_import

PREFIX = "data:image/png;base64,"
MOST_PIXELS = 20  # a side: 32 samples in colour are at most 52 kilobytes


def thumbnails(inputs: Any) -> tuple[str, ...]:
    """The address of a picture of each sample, scaled from its darkest to its brightest; none where they are no images.

    Images are floating, (samples, channels, height, width) with one or three channels, and 8 pixels a side or more.
    """
    is_image = isinstance(inputs, Tensor) and inputs.ndim == 4 and inputs.shape[1] in (1, 3)
    if not is_image or not inputs.is_floating_point() or min(inputs.shape[2:]) < 8:
        return ()
    shrink = min(1.0, MOST_PIXELS / max(inputs.shape[2:]))
    height, width = (max(1, round(shrink * side)) for side in inputs.shape[2:])
    images = F.adaptive_avg_pool2d(inputs.detach().double().cpu(), (height, width)).permute(0, 2, 3, 1)
    low, high = (side.view(-1, 1, 1, 1) for side in torch.aminmax(images.flatten(1), dim=1))
    pixels = ((images - low) / (high - low).clamp_min(1e-12) * 255).nan_to_num(0.0).round().to(torch.uint8)
    return tuple(PREFIX + base64.b64encode(_png(image)).decode() for image in pixels)


def _png(pixels: Tensor) -> bytes:
    """A PNG file of bytes (height, width, channels)."""
    content, pillow = io.BytesIO(), optional_import("PIL.Image", "pictures of samples", "pillow")
    pillow.fromarray(pixels.squeeze(2).numpy()).save(content, "PNG", optimize=True)
    return content.getvalue()
