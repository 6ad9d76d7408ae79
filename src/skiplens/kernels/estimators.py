"""Kernel ridge regression and classification with the infinite-width kernels, as scikit-learn estimators."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from skiplens.core.errors import InvalidInputError
from skiplens.kernels.angular import Quantity
from skiplens.kernels.architecture import Architecture, ArchitectureOptions
from skiplens.kernels.infinite_width import InfiniteWidthKernel, Trained
from skiplens.kernels.ridge import ridge_weights
from skiplens.kernels.sklearn_kernel import matrix

Array = npt.NDArray[Any]
_ENTRIES_AT_ONCE = 2**24


class _ResidualKernelEstimator(BaseEstimator):
    """What both estimators share: options, the inputs with their constant feature, the ridge solution.

    Args:
        architecture: ``"resnet"``, ``"densenet"`` or ``"vanilla"``.
        depth: Residual blocks or layers.
        branch_depth: Matrices per branch of a ResNet.
        branch_scale: Scale of each matrix of a branch of a ResNet.
        quantity: ``"ntk"`` or ``"nngp"``.
        trained: ``"branches"`` or ``"all"``.
        ridge: Added to the diagonal of the kernel, which is ‖x‖²/d.
        constant: A feature of this value is added to every input, since the kernels alone are homogeneous; 0 for none.
    """

    def __init__(  # noqa: PLR0913 - scikit-learn wants each option as an argument of its own
        self,
        architecture: Architecture = "resnet",
        depth: int = 10,
        branch_depth: int = 2,
        branch_scale: float = 0.3,
        quantity: Quantity = "ntk",
        trained: Trained = "branches",
        ridge: float = 1e-3,
        constant: float = 1.0,
    ) -> None:
        self.architecture = architecture
        self.depth = depth
        self.branch_depth = branch_depth
        self.branch_scale = branch_scale
        self.quantity = quantity
        self.trained = trained
        self.ridge = ridge
        self.constant = constant

    def _fit_targets(self, X: Array, targets: Array) -> None:
        """Solve for (samples, outputs) targets around their mean."""
        self._train_inputs = self._inputs(X)
        self._offset = targets.mean(axis=0)
        K = matrix(self._kernel(), self.quantity, self._train_inputs)
        centred = torch.tensor(targets - self._offset, dtype=K.dtype)
        self.dual_coef_ = ridge_weights(K, centred, float(self.ridge)).numpy()

    def _outputs(self, X: Array) -> Array:
        """The (samples, outputs) predictions, a bounded number of kernel entries at a time."""
        kernel, weights = self._kernel(), torch.tensor(self.dual_coef_)
        step = max(1, _ENTRIES_AT_ONCE // len(self._train_inputs))
        inputs = self._inputs(X).to(self._train_inputs)
        parts = [matrix(kernel, self.quantity, rows, self._train_inputs) @ weights for rows in inputs.split(step)]
        return torch.cat(parts).numpy() + self._offset

    def _kernel(self) -> InfiniteWidthKernel:
        options = ArchitectureOptions(
            self.architecture, self.depth, self.branch_depth, float(self.branch_scale), self.trained, normalise=True
        )
        return options.kernel()

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
        check_is_fitted(self)
        outputs = self._outputs(validate_data(self, X, reset=False, dtype=[np.float64, np.float32]))
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
        check_is_fitted(self)
        outputs = self._outputs(validate_data(self, X, reset=False, dtype=[np.float64, np.float32]))
        return outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict(self, X: Any) -> Array:
        """The class with the largest decision value."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]
