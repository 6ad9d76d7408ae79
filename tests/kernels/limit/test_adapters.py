"""The kernel of a module in scikit-learn, GPyTorch and Gram matrices, also of images as flattened rows."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.svm import SVC

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # linear_operator still compiles with torch.jit.script
    import gpytorch

from skiplens.base.errors import TooLargeError
from skiplens.kernels import GPyTorchModuleKernel, SklearnModuleKernel, gram, infinite_width
from skiplens.sweeps.executor import ThisProcess
from skiplens.sweeps.gram_tiles import spread_gram
from tests.kernels.limit.cases import make_spatial, spatial_inputs

X = spatial_inputs("global_pool", 7)


@pytest.fixture(scope="module")
def kernel():
    return infinite_width(make_spatial("global_pool", 8, 1), X[:1])


def test_scikit_learn_predicts_with_it(kernel):
    wanted, rows, labels = kernel.ntk(X), X.flatten(1).numpy(), [0, 1, 0, 1, 0, 1, 0]
    made = SklearnModuleKernel(kernel)
    np.testing.assert_allclose(made(rows), wanted, rtol=1e-12)
    np.testing.assert_allclose(made.diag(rows), wanted.diagonal(), rtol=1e-12)
    assert made(rows, eval_gradient=True)[1].shape == (7, 7, 0)
    process = GaussianProcessRegressor(made, alpha=0.1).fit(rows[:5], labels[:5])
    by_hand = wanted[5:, :5] @ torch.linalg.solve(
        wanted[:5, :5] + 0.1 * torch.eye(5), torch.tensor(labels[:5]).double()
    )
    np.testing.assert_allclose(process.predict(rows[5:]), by_hand, rtol=1e-8)
    machines = SVC(kernel=made).fit(rows, labels), SVC(kernel="precomputed").fit(wanted.numpy(), labels)
    np.testing.assert_array_equal(machines[0].predict(rows), machines[1].predict(wanted.numpy()))
    assert repr(made) == "SklearnModuleKernel(Sequential, 'ntk')" and not made.is_stationary()


def test_gpytorch_sees_the_same_matrix(kernel):
    made, rows = gpytorch.kernels.ScaleKernel(GPyTorchModuleKernel(kernel, "nngp")), X.flatten(1)
    made.outputscale = 2.0
    torch.testing.assert_close(made(rows).to_dense(), 2 * kernel.nngp(X), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(made(rows, rows[:2]).to_dense(), 2 * kernel.nngp(X, X[:2]), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(made(rows, diag=True), 2 * kernel.diagonal(X, "nngp"), rtol=1e-6, atol=1e-9)


def test_tiles_within_a_budget_are_the_same_matrix(kernel):
    whole = kernel.ntk(X)
    for memory in (128 * 400, 10 * 128 * 400):  # one pair of inputs at once, or three by three
        torch.testing.assert_close(kernel.ntk(X, memory=memory), whole, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(kernel.ntk(X[:3], X[2:], memory=memory), whole[:3, 2:], rtol=1e-7, atol=1e-9)
    with pytest.raises(
        TooLargeError, match=r"The kernel of one pair of inputs needs .* a flatten instead of the pooling"
    ):
        kernel.ntk(X, memory=128 * 400 - 1)


@pytest.mark.slow
def test_gram_matrices_in_files_and_by_workers(kernel, tmp_path):
    rows, whole = X.flatten(1), kernel.ntk(X)
    torch.testing.assert_close(gram(kernel.ntk, rows), whole)
    found = spread_gram(ThisProcess(), kernel, rows, tmp_path / "gram.zarr")
    torch.testing.assert_close(torch.from_numpy(np.array(found)), whole)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gram.zarr", "gram.zarr.tiles"]
