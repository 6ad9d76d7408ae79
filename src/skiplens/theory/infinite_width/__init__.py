"""Kernels of infinitely wide residual, dense and plain ReLU networks."""

from skiplens.theory.infinite_width.arc_cosine import Correlation as Correlation
from skiplens.theory.infinite_width.densenet import DenseNetLimit as DenseNetLimit
from skiplens.theory.infinite_width.limit import Limit as Limit
from skiplens.theory.infinite_width.limit import LimitKernels as LimitKernels
from skiplens.theory.infinite_width.resnet import ResNetLimit as ResNetLimit
from skiplens.theory.infinite_width.tabulated import Table as Table
from skiplens.theory.infinite_width.tabulated import tabulate as tabulate
from skiplens.theory.infinite_width.vanilla import VanillaLimit as VanillaLimit
