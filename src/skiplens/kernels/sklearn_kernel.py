"""The infinite-width kernels as a scikit-learn `Kernel`: for Gaussian processes, and as a callable for `SVC`."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel

from skiplens.core.errors import InvalidInputError
from skiplens.kernels.angular import Quantity
from skiplens.kernels.architecture import Architecture, ArchitectureOptions
from skiplens.kernels.infinite_width import InfiniteWidthKernel, Trained
from skiplens.kernels.resnet import ResNetKernel

Array = npt.NDArray[Any]


class ResidualKernel(Kernel):
    """The tangent kernel or the covariance of an infinitely wide network.

    The branch scale of a ResNet is a hyperparameter: `GaussianProcessRegressor` learns it with the exact gradient, and
    a search over ``kernel__branch_scale`` works as with any other kernel.

    Args:
        architecture: ``"resnet"``, ``"densenet"`` or ``"vanilla"``.
        depth: Residual blocks or layers.
        branch_depth: Matrices per branch of a ResNet.
        branch_scale: Scale of each matrix of a branch of a ResNet.
        branch_scale_bounds: Where to search for the branch scale, or ``"fixed"``.
        quantity: ``"ntk"`` or ``"nngp"``.
        trained: ``"branches"`` or ``"all"``.
        normalise: Divide by the kernel at equal inputs.

    Examples:
        >>> from sklearn.svm import SVC
        >>> classifier = SVC(kernel=ResidualKernel(depth=5)).fit([[0.0, 1.0], [1.0, 0.0]], [0, 1])
        >>> classifier.predict([[0.1, 1.0]]).tolist()
        [0]
    """

    def __init__(  # noqa: PLR0913 - scikit-learn wants each option as an argument of its own
        self,
        architecture: Architecture = "resnet",
        depth: int = 10,
        branch_depth: int = 2,
        branch_scale: float = 0.3,
        branch_scale_bounds: tuple[float, float] | str = (1e-3, 1e1),
        quantity: Quantity = "ntk",
        trained: Trained = "branches",
        normalise: bool = False,
    ) -> None:
        self.architecture = architecture
        self.depth = depth
        self.branch_depth = branch_depth
        self.branch_scale = branch_scale
        self.branch_scale_bounds = branch_scale_bounds
        self.quantity = quantity
        self.trained = trained
        self.normalise = normalise

    @property
    def hyperparameter_branch_scale(self) -> Hyperparameter:
        """The branch scale; fixed for architectures that have none."""
        bounds = self.branch_scale_bounds if self.architecture == "resnet" else "fixed"
        return Hyperparameter("branch_scale", "numeric", bounds)

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Array | tuple[Array, Array]:
        """The kernel matrix and, if asked for, its derivative by the logarithm of the branch scale.

        Args:
            X: Inputs, (samples, features).
            Y: Other inputs; `X` itself if not given.
            eval_gradient: Whether to return the derivative, (samples, samples, 0 or 1), too.
        """
        left, right = as_tensor(X), None if Y is None else as_tensor(Y)
        kernel = self.kernel()
        K = matrix(kernel, self.quantity, left, right).numpy()
        if not eval_gradient:
            return K
        if Y is not None:
            raise InvalidInputError("The gradient is for the kernel of X with itself; call with Y=None.")
        if self.hyperparameter_branch_scale.fixed or not isinstance(kernel, ResNetKernel):
            return K, np.empty((*K.shape, 0))
        derivative = kernel.branch_scale_derivative(left, quantity=self.quantity)
        return K, self.branch_scale * derivative.numpy()[:, :, np.newaxis]

    def diag(self, X: Any) -> Array:
        """The kernel of each input with itself."""
        return self.kernel().diagonal(as_tensor(X), self.quantity).numpy()

    def is_stationary(self) -> bool:
        """False: the kernel depends on the inputs' norms."""
        return False

    def __repr__(self) -> str:
        if self.architecture != "resnet":
            return f"ResidualKernel({self.architecture!r}, depth={self.depth})"
        scale = f"branch_scale={self.branch_scale:.3g}"
        return f"ResidualKernel(depth={self.depth}, branch_depth={self.branch_depth}, {scale})"

    def kernel(self) -> InfiniteWidthKernel:
        """The torch kernel with these options."""
        options = ArchitectureOptions(
            self.architecture, self.depth, self.branch_depth, float(self.branch_scale), self.trained, self.normalise
        )
        return options.kernel()


def as_tensor(X: Any) -> torch.Tensor:
    """Rows of numbers as a tensor; float32 stays, anything else becomes float64."""
    array = np.asarray(X)
    if array.dtype != np.float32:
        array = array.astype(np.float64)
    return torch.tensor(np.atleast_2d(array))


def matrix(
    kernel: InfiniteWidthKernel, quantity: Quantity, X: torch.Tensor, Y: torch.Tensor | None = None
) -> torch.Tensor:
    """The kernel matrix of the wanted quantity."""
    return kernel.ntk(X, Y) if quantity == "ntk" else kernel.nngp(X, Y)
