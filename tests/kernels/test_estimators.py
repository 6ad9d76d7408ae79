import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV

from skiplens.base.errors import InvalidInputError
from skiplens.kernels import ResidualKernel, ResidualKernelClassifier, ResidualKernelRegressor, sklearn_kernel

CHECKS = """
from sklearn.utils.estimator_checks import check_estimator
from skiplens.kernels import ResidualKernelClassifier, ResidualKernelRegressor
for estimator in (ResidualKernelRegressor(), ResidualKernelClassifier("densenet", depth=5)):
    results = check_estimator(estimator, on_fail=None)
    print(sum(result["status"] == "passed" for result in results), end=" ")
    print([(result["check_name"], result["exception"]) for result in results if result["status"] == "failed"])
"""


@pytest.mark.slow
def test_every_check_of_scikit_learn():
    """In a process of its own: one check gives options of any type, which the type hook of these tests would refuse."""
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", CHECKS], capture_output=True, text=True, check=True)
    for line in run.stdout.splitlines():
        passed, _, failed = line.partition(" ")
        assert int(passed) > 40 and failed == "[]"
    assert len(run.stdout.splitlines()) == 2


@pytest.mark.parametrize("outputs", [None, 2])
def test_regression_equals_kernel_ridge_with_the_same_kernel(outputs, seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40 if outputs is None else (40, outputs))
    kernel = ResidualKernel(depth=4, normalise=True)
    found = ResidualKernelRegressor(depth=4, ridge=0.1, constant=0.0).fit(X, y)
    reference = KernelRidge(alpha=0.1, kernel="precomputed").fit(kernel(X), y - y.mean(0)).predict(
        kernel(X[:7], X)
    ) + y.mean(0)
    np.testing.assert_allclose(found.predict(X[:7]), reference, rtol=1e-9)


def test_a_constant_feature_is_added(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(20, 2)), rng.normal(size=20)
    with_constant = ResidualKernelRegressor(constant=2.0).fit(X, y).predict(X)
    by_hand = (
        ResidualKernelRegressor(constant=0.0).fit(np.c_[X, np.full(20, 2.0)], y).predict(np.c_[X, np.full(20, 2.0)])
    )
    np.testing.assert_allclose(with_constant, by_hand, rtol=1e-10)


def test_classification_of_moons(seed):
    X, y = make_moons(200, noise=0.1, random_state=seed)
    model = ResidualKernelClassifier(depth=5).fit(X[:100], y[:100])
    assert model.score(X[100:], y[100:]) > 0.9
    assert model.decision_function(X).shape == (200,)


def test_three_classes_with_names(seed):
    rng = np.random.default_rng(seed)
    centers = np.array([[4.0, 0.0], [0.0, 4.0], [-4.0, -4.0]])
    numbers = rng.integers(3, size=90)
    X, y = centers[numbers] + rng.normal(size=(90, 2)), np.array(["a", "b", "c"])[numbers]
    model = ResidualKernelClassifier().fit(X, y)
    assert model.score(X, y) > 0.95 and model.decision_function(X).shape == (90, 3)


def test_a_search_over_depth_and_scale(seed):
    X, y = make_moons(60, noise=0.1, random_state=seed)
    search = GridSearchCV(ResidualKernelClassifier(), {"depth": [1, 5], "branch_scale": [0.1, 0.9]}, cv=3).fit(X, y)
    assert set(search.best_params_) == {"depth", "branch_scale"} and search.best_score_ > 0.8


def test_predictions_in_batches_are_the_same(seed, monkeypatch):
    X, y = make_moons(60, noise=0.1, random_state=seed)
    model = ResidualKernelClassifier().fit(X, y)
    whole = model.decision_function(X)
    monkeypatch.setattr(sklearn_kernel, "_ENTRIES_AT_ONCE", 60 * 7)
    np.testing.assert_allclose(model.decision_function(X), whole, rtol=1e-9, atol=1e-10)


def test_one_class_is_refused():
    with pytest.raises(InvalidInputError, match="at least 2 classes; got 1 class: 3"):
        ResidualKernelClassifier().fit([[0.0], [1.0]], [3, 3])
