"""Float32 that is float32: GPUs round the factors of products to 10 bits unless they are told not to."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def full_precision() -> Iterator[None]:
    """Run a block in which float32 products on a GPU keep all their bits; the user's choice comes back afterwards.

    By default cuDNN rounds the factors of a float32 convolution to TF32, which changes a tangent kernel by 2e-3.
    """
    if not torch.cuda.is_available():
        yield
        return
    convolutions, products = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    try:
        torch.backends.cudnn.allow_tf32 = False
        torch.set_float32_matmul_precision("highest")
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = convolutions
        torch.set_float32_matmul_precision(products)
