"""The infinite-width kernels in scikit-learn: a `Kernel` for Gaussian processes and `SVC`, and ridge estimators."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from skiplens.base import DidNotConverge, Float, InvalidInputError, refuse_if
from skiplens.kernels.angular import Quantity
from skiplens.kernels.architectures import Architecture, InfiniteWidthKernel, ResNetKernel, Trained, kernel_by_name
from skiplens.kernels.limit.kernel import ModuleKernel

Array = npt.NDArray[Any]
_ENTRIES_AT_ONCE = 2**24


@dataclass(eq=False, repr=False)  # scikit-learn wants each option as an argument and an attribute
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

    architecture: Architecture = "resnet"
    depth: int = 10
    branch_depth: int = 2
    branch_scale: float = 0.3
    branch_scale_bounds: tuple[float, float] | str = (1e-3, 1e1)
    quantity: Quantity = "ntk"
    trained: Trained = "branches"
    normalise: bool = False

    @property
    def hyperparameter_branch_scale(self) -> Hyperparameter:
        """The branch scale; fixed for architectures that have none."""
        bounds = self.branch_scale_bounds if self.architecture == "resnet" else "fixed"
        return Hyperparameter("branch_scale", "numeric", bounds)

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Array | tuple[Array, Array]:
        """The kernel matrix and, if asked for, its derivative with respect to the logarithm of the branch scale.

        Args:
            X: Inputs, (samples, features).
            Y: Other inputs; `X` itself if not given.
            eval_gradient: Whether to return the derivative, (samples, samples, 0 or 1), too.
        """
        left, right = as_tensor(X), None if Y is None else as_tensor(Y)
        if eval_gradient:
            left = left.double()  # a line search near the optimum stumbles over roundings of float32
        kernel = self.kernel()
        K = kernel.matrix(self.quantity, left, right).numpy()
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
        depths = f"depth={self.depth}, branch_depth={self.branch_depth}"
        return f"ResidualKernel({depths}, branch_scale={self.branch_scale:.3g})"

    def kernel(self) -> InfiniteWidthKernel:
        """The torch kernel with these options."""
        scale = float(self.branch_scale)
        return kernel_by_name(self.architecture, self.depth, self.branch_depth, scale, self.trained, self.normalise)


@dataclass(eq=False, repr=False)
class SklearnModuleKernel(Kernel):
    """The kernel of the infinitely wide version of your own module; nothing of it is learned.

    Args:
        kernel: Made by `infinite_width`; inputs of more axes come as flattened rows.
        quantity: ``"ntk"`` or ``"nngp"``.
    """

    kernel: ModuleKernel
    quantity: Quantity = "ntk"

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Array | tuple[Array, Array]:
        """The kernel matrix and, if asked for, its derivatives, of which there are none."""
        K = self.kernel.matrix(self.quantity, as_tensor(X), None if Y is None else as_tensor(Y)).numpy()
        return (K, np.empty((*K.shape, 0))) if eval_gradient else K

    def diag(self, X: Any) -> Array:
        """The kernel of each input with itself."""
        return self.kernel.diagonal(as_tensor(X), self.quantity).numpy()

    def is_stationary(self) -> bool:
        """False: the kernel depends on more than a difference of inputs."""
        return False

    def __repr__(self) -> str:
        return f"SklearnModuleKernel({type(self.kernel.network.model).__name__}, {self.quantity!r})"


def as_tensor(X: Any) -> torch.Tensor:
    """Rows of numbers as a tensor; float32 stays, anything else becomes float64."""
    array = np.asarray(X)
    return torch.tensor(np.atleast_2d(array if array.dtype == np.float32 else array.astype(np.float64)))


@dataclass(eq=False, repr=False)
class _ResidualKernelEstimator(BaseEstimator):
    """What both estimators share: options as in `ResidualKernel`, a constant feature, the ridge solution.

    Args:
        ridge: Added to the diagonal of the kernel, which is ‖x‖²/d.
        constant: A feature of this value is added to every input, since the kernels alone are homogeneous; 0 for none.
    """

    architecture: Architecture = "resnet"
    depth: int = 10
    branch_depth: int = 2
    branch_scale: float = 0.3
    quantity: Quantity = "ntk"
    trained: Trained = "branches"
    ridge: float = 1e-3
    constant: float = 1.0

    def _fit_targets(self, X: Array, targets: Array) -> None:
        """Solve for (samples, outputs) targets around their mean."""
        self._train_inputs = self._inputs(X)
        self._offset = targets.mean(axis=0)
        K = self._kernel().matrix(self.quantity, self._train_inputs)
        centred = torch.tensor(targets - self._offset, dtype=K.dtype)
        self.dual_coef_ = ridge_weights(K, centred, float(self.ridge)).numpy()

    def _outputs(self, X: Any) -> Array:
        """The (samples, outputs) predictions, a bounded number of kernel entries at a time."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        kernel, weights = self._kernel(), torch.tensor(self.dual_coef_)
        step = max(1, _ENTRIES_AT_ONCE // len(self._train_inputs))
        inputs = self._inputs(X).to(self._train_inputs)
        parts = [kernel.matrix(self.quantity, rows, self._train_inputs) @ weights for rows in inputs.split(step)]
        return torch.cat(parts).numpy() + self._offset

    def _kernel(self) -> InfiniteWidthKernel:
        scale = float(self.branch_scale)
        return kernel_by_name(self.architecture, self.depth, self.branch_depth, scale, self.trained, normalise=True)

    def _inputs(self, X: Array) -> torch.Tensor:
        constant = np.full((len(X), 1 if self.constant else 0), self.constant, dtype=X.dtype)
        return torch.tensor(np.hstack([X, constant]))


class ResidualKernelRegressor(RegressorMixin, _ResidualKernelEstimator):
    """Kernel ridge regression with the kernel of an infinitely wide network."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> "ResidualKernelRegressor":
        """Fit to inputs (samples, features) and targets (samples,) or (samples, outputs)."""
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, dtype=[np.float64, np.float32])
        self._one_output = y.ndim == 1
        self._fit_targets(X, y.reshape(len(y), -1))
        return self

    def predict(self, X: Any) -> Array:
        """Predictions in the form of the targets."""
        outputs = self._outputs(X)
        return outputs[:, 0] if self._one_output else outputs


class ResidualKernelClassifier(ClassifierMixin, _ResidualKernelEstimator):
    """Classification by kernel ridge regression to ±1 for each class."""

    def fit(self, X: Any, y: Any) -> "ResidualKernelClassifier":
        """Fit to inputs (samples, features) and one label per sample."""
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InvalidInputError(
                f"A classifier needs samples of at least 2 classes; got 1 class: {self.classes_[0]}."
            )
        targets = np.where(numbers[:, np.newaxis] == np.arange(len(self.classes_)), 1.0, -1.0)
        self._fit_targets(X, targets[:, 1:] if len(self.classes_) == 2 else targets)
        return self

    def decision_function(self, X: Any) -> Array:
        """(samples,) for two classes, positive for the second one; otherwise (samples, classes)."""
        outputs = self._outputs(X)
        return outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict(self, X: Any) -> Array:
        """The class with the largest decision value."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]


def ridge_weights(
    K: Float[Tensor, "samples samples"], targets: Float[Tensor, "samples outputs"], ridge: float
) -> Float[Tensor, "samples outputs"]:
    """(K + ridge·I)⁻¹ targets."""
    refuse_if(not ridge >= 0, f"ridge must not be negative, got {ridge}.")
    shifted = K.clone()  # with the factor, two matrices beside K: 50,000 samples in float64 then fit in 60 GB
    shifted.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(shifted)
    if failed:
        raise DidNotConverge(
            f"The kernel matrix of {len(K)} samples plus ridge {ridge:g} is not positive definite in {K.dtype}: "
            "some inputs are (nearly) equal. Take a larger ridge or float64 inputs."
        )
    return torch.cholesky_solve(targets, factor)
