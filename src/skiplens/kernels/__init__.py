"""The infinite-width kernels as users know kernels: torch, scikit-learn, GPyTorch, Gram matrices of any size."""

from skiplens.kernels.densenet import DenseNetKernel as DenseNetKernel
from skiplens.kernels.infinite_width import InfiniteWidthKernel as InfiniteWidthKernel
from skiplens.kernels.resnet import ResNetKernel as ResNetKernel
from skiplens.kernels.vanilla import VanillaKernel as VanillaKernel
