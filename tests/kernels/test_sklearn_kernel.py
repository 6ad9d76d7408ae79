import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from skiplens.base.errors import InvalidInputError
from skiplens.kernels import ResidualKernel
from skiplens.kernels.architectures import DenseNetKernel, ResNetKernel


@pytest.fixture
def data(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1]


def test_values_are_those_of_the_torch_kernels(data):
    X, _ = data
    tensor = torch.tensor(X)
    np.testing.assert_allclose(ResidualKernel(depth=5, branch_scale=0.4)(X), ResNetKernel(5, 2, 0.4).ntk(tensor))
    dense = ResidualKernel("densenet", depth=5, quantity="nngp", trained="all")
    np.testing.assert_allclose(dense(X, X[:4]), DenseNetKernel(5).nngp(tensor, tensor[:4]))
    np.testing.assert_allclose(dense.diag(X), np.diag(dense(X)))


def test_what_a_line_search_asks_for_is_in_float64_also_of_float32_inputs(data):
    rounded = data[0].astype(np.float32)
    for found, wanted in zip(
        *(ResidualKernel(depth=6)(X, eval_gradient=True) for X in (rounded, rounded.astype(float))), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == np.float64


def test_gradient_against_finite_differences_of_the_logarithm(data):
    X, _ = data
    kernel, step = ResidualKernel(depth=6, branch_depth=3, branch_scale=0.7), 1e-5
    _, gradient = kernel(X, eval_gradient=True)
    above, below = (kernel.clone_with_theta(kernel.theta + sign * step)(X) for sign in (1, -1))
    expected = (above - below) / (2 * step)
    # second-order differences: error of about step² times the third derivative
    np.testing.assert_allclose(gradient[:, :, 0], expected, rtol=0, atol=1e-7 * np.abs(expected).max())


def test_a_gaussian_process_learns_the_scale(data):
    X, y = data
    start = ResidualKernel(depth=4, branch_scale=0.05)
    model = GaussianProcessRegressor(start, alpha=1e-2).fit(X, y)
    assert model.log_marginal_likelihood_value_ > model.log_marginal_likelihood(start.theta)
    # the likelihood at the optimum has no slope
    _, slope = model.log_marginal_likelihood(model.kernel_.theta, eval_gradient=True)
    assert abs(slope[0]) < 1e-2 * len(y)


def test_sums_and_products_with_other_kernels(data):
    X, y = data
    kernel = ConstantKernel() * ResidualKernel(depth=3) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, optimizer=None).fit(X, y)
    assert len(model.kernel_.theta) == 3 and np.isfinite(model.predict(X[:3], return_std=True)[1]).all()


@pytest.mark.parametrize(
    "kernel", [ResidualKernel("vanilla", depth=3), ResidualKernel(depth=3, branch_scale_bounds="fixed")]
)
def test_nothing_to_learn_gives_an_empty_gradient(kernel, data):
    K, gradient = kernel(data[0], eval_gradient=True)
    assert gradient.shape == (*K.shape, 0) and len(kernel.theta) == 0


def test_clones_are_equal(data):
    kernel = ResidualKernel(depth=7, branch_scale=0.2, quantity="nngp")
    assert clone(kernel) == kernel and clone(kernel).get_params() == kernel.get_params()
    assert not kernel.is_stationary()


def test_a_support_vector_machine_takes_it_as_a_callable(data):
    X, y = data
    labels, kernel = (y > 0).astype(int), ResidualKernel(depth=3, branch_scale=0.5)
    found = SVC(kernel=kernel).fit(X[:20], labels[:20]).decision_function(X[20:])
    precomputed = SVC(kernel="precomputed").fit(kernel(X[:20]), labels[:20])
    np.testing.assert_allclose(found, precomputed.decision_function(kernel(X[20:], X[:20])), rtol=1e-6)


def test_a_search_over_the_scale(data):
    scales = {"kernel__branch_scale": [0.1, 0.6]}
    search = GridSearchCV(GaussianProcessRegressor(ResidualKernel(), optimizer=None, alpha=1e-3), scales).fit(*data)
    assert search.best_params_["kernel__branch_scale"] in (0.1, 0.6)
    assert len(set(search.cv_results_["mean_test_score"])) == 2  # the parameter arrives


def test_single_precision_stays():
    assert ResidualKernel(depth=2)(np.eye(3, dtype=np.float32)).dtype == np.float32
    assert ResidualKernel(depth=2)([[1, 2], [3, 4]]).dtype == np.float64


def test_shown_by_its_options():
    assert (
        repr(ResidualKernel(depth=3, branch_scale=0.25)) == "ResidualKernel(depth=3, branch_depth=2, branch_scale=0.25)"
    )
    assert repr(ResidualKernel("densenet", depth=3)) == "ResidualKernel('densenet', depth=3)"


def test_a_gradient_with_other_inputs_is_refused(data):
    with pytest.raises(InvalidInputError, match="gradient is for the kernel of X with itself; call with Y=None"):
        ResidualKernel()(data[0], data[0], eval_gradient=True)
