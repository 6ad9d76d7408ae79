"""The infinite-width kernels as users know kernels: torch, scikit-learn, GPyTorch, Gram matrices of any size."""

from typing import Any

from skiplens.base.optional_imports import optional_import
from skiplens.kernels.architectures import DenseNetKernel as DenseNetKernel
from skiplens.kernels.architectures import InfiniteWidthKernel as InfiniteWidthKernel
from skiplens.kernels.architectures import ResNetKernel as ResNetKernel
from skiplens.kernels.architectures import VanillaKernel as VanillaKernel
from skiplens.kernels.gram import gram as gram
from skiplens.kernels.limit.depth import DepthScale as DepthScale
from skiplens.kernels.limit.kernel import ModuleKernel as ModuleKernel
from skiplens.kernels.limit.kernel import WidthComparison as WidthComparison
from skiplens.kernels.limit.kernel import infinite_width as infinite_width

# Their base classes belong to other packages, so their modules are imported when one of these names is first used.
_BEHIND_DOORS = {
    "ResidualKernel": ("skiplens.kernels.sklearn_kernel", "sklearn", "skiplens[sklearn]"),
    "ResidualKernelRegressor": ("skiplens.kernels.sklearn_kernel", "sklearn", "skiplens[sklearn]"),
    "ResidualKernelClassifier": ("skiplens.kernels.sklearn_kernel", "sklearn", "skiplens[sklearn]"),
    "SklearnModuleKernel": ("skiplens.kernels.sklearn_kernel", "sklearn", "skiplens[sklearn]"),
    "GPyTorchResidualKernel": ("skiplens.kernels.gpytorch_kernel", "gpytorch", "skiplens[gpytorch]"),
    "GPyTorchModuleKernel": ("skiplens.kernels.gpytorch_kernel", "gpytorch", "skiplens[gpytorch]"),
}


def __getattr__(name: str) -> Any:
    if name not in _BEHIND_DOORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, package, install = _BEHIND_DOORS[name]
    optional_import(package, name, install)
    return getattr(optional_import(module, name, install), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_BEHIND_DOORS])
