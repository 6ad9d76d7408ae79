"""The infinite-width kernels as users know kernels: torch, scikit-learn, GPyTorch, Gram matrices of any size."""

from typing import Any

from skiplens.core.doors import open_door
from skiplens.kernels.densenet import DenseNetKernel as DenseNetKernel
from skiplens.kernels.gram import gram as gram
from skiplens.kernels.infinite_width import InfiniteWidthKernel as InfiniteWidthKernel
from skiplens.kernels.resnet import ResNetKernel as ResNetKernel
from skiplens.kernels.vanilla import VanillaKernel as VanillaKernel

# Their base classes belong to other packages, so their modules are imported when one of these names is first used.
_BEHIND_DOORS = {
    "ResidualKernel": ("skiplens.kernels.sklearn_kernel", "sklearn", "skiplens[sklearn]"),
    "ResidualKernelRegressor": ("skiplens.kernels.estimators", "sklearn", "skiplens[sklearn]"),
    "ResidualKernelClassifier": ("skiplens.kernels.estimators", "sklearn", "skiplens[sklearn]"),
    "GPyTorchResidualKernel": ("skiplens.kernels.gpytorch_kernel", "gpytorch", "skiplens[gpytorch]"),
}


def __getattr__(name: str) -> Any:
    if name not in _BEHIND_DOORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, package, install = _BEHIND_DOORS[name]
    open_door(package, name, install)
    return getattr(open_door(module, name, install), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_BEHIND_DOORS])
