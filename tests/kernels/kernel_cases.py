"""The kernels that every common test runs on."""

from skiplens.kernels.architectures import DenseNetKernel, InfiniteWidthKernel, ResNetKernel, VanillaKernel

KERNELS = [
    ResNetKernel(1, 2, 0.5),
    ResNetKernel(10, 2, 0.3),
    ResNetKernel(5, 3, 0.7, trained="all"),
    ResNetKernel(100, 2, 1.0, normalise=True),
    ResNetKernel(3, 2, [0.1, 0.9, 0.4]),
    ResNetKernel(4, 1, 0.5),
    DenseNetKernel(5),
    DenseNetKernel(30, trained="all"),
    VanillaKernel(8),
]
QUANTITIES = ("nngp", "ntk")


def name(value):
    return f"{type(value).__name__}{value.depth}" if isinstance(value, InfiniteWidthKernel) else None
