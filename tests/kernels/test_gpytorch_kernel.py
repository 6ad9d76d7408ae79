import warnings

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # linear_operator still compiles with torch.jit.script
    import gpytorch

from skiplens.base.errors import InvalidInputError
from skiplens.kernels import GPyTorchResidualKernel
from skiplens.kernels.architectures import DenseNetKernel, ResNetKernel


@pytest.fixture
def X(generator):
    return torch.randn(12, 3, generator=generator)


def test_values_are_those_of_the_torch_kernels(X):
    kernel = GPyTorchResidualKernel(4, branch_scale=0.4)
    torch.testing.assert_close(kernel(X).to_dense(), ResNetKernel(4, 2, 0.4).ntk(X))
    torch.testing.assert_close(kernel(X, X[:5]).to_dense(), ResNetKernel(4, 2, 0.4).ntk(X, X[:5]))
    torch.testing.assert_close(kernel(X, diag=True), ResNetKernel(4, 2, 0.4).diagonal(X))
    torch.testing.assert_close(kernel(X, X.flip(0), diag=True), ResNetKernel(4, 2, 0.4).ntk(X, X.flip(0)).diagonal())
    dense = GPyTorchResidualKernel(4, architecture="densenet", quantity="nngp", trained="all")
    torch.testing.assert_close(dense(X).to_dense(), DenseNetKernel(4).nngp(X))
    assert list(dense.parameters()) == []


def test_batches_of_inputs(X):
    kernel = GPyTorchResidualKernel(4, branch_scale=0.4)
    batch = X.view(3, 4, 3)
    found = kernel(batch, X[:2]).to_dense()
    expected = torch.stack([ResNetKernel(4, 2, 0.4).ntk(rows, X[:2]) for rows in batch])
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(kernel(batch, diag=True), ResNetKernel(4, 2, 0.4).diagonal(X).view(3, 4))


def test_batches_of_hyperparameters(X):
    kernel = GPyTorchResidualKernel(4, batch_shape=torch.Size([2]))
    kernel.branch_scale = torch.tensor([0.2, 0.9]).view(2, 1, 1)
    expected = torch.stack([ResNetKernel(4, 2, scale).ntk(X) for scale in (0.2, 0.9)])
    torch.testing.assert_close(kernel(X).to_dense(), expected)


def test_active_dimensions(X):
    kernel = GPyTorchResidualKernel(4, branch_scale=0.4, active_dims=(0, 2))
    torch.testing.assert_close(kernel(X).to_dense(), ResNetKernel(4, 2, 0.4).ntk(X[:, [0, 2]]))


def test_gradient_by_the_raw_scale_against_finite_differences(X):
    kernel = GPyTorchResidualKernel(3, branch_scale=0.6)

    def total(raw):
        with torch.no_grad():
            kernel.raw_branch_scale.fill_(float(raw))
        return kernel(X).to_dense().sum()

    raw, step = float(kernel.raw_branch_scale.detach()), 1e-5
    total(raw).backward()
    expected = (float(total(raw + step).detach()) - float(total(raw - step).detach())) / (2 * step)
    assert float(kernel.raw_branch_scale.grad) == pytest.approx(expected, rel=1e-6)


class Process(gpytorch.models.ExactGP):
    def __init__(self, X, y, likelihood):
        super().__init__(X, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(GPyTorchResidualKernel(3, branch_scale=0.2, normalise=True))

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def test_an_exact_process_learns_and_predicts(X):
    y = torch.sin(X[:, 0])
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Process(X, y, likelihood).double()
    likelihood.double()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    losses = []
    for _ in range(15):
        optimiser.zero_grad()
        loss = -objective(model(X), y)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    model.eval()
    with torch.no_grad():
        prediction = likelihood(model(X[:4] + 0.1))
    assert torch.isfinite(prediction.mean).all() and (prediction.variance > 0).all()


def test_a_constraint_of_the_scale(X):
    kernel = GPyTorchResidualKernel(
        3, branch_scale=0.5, branch_scale_constraint=gpytorch.constraints.Interval(0.1, 1.0)
    )
    assert float(kernel.branch_scale.detach()) == pytest.approx(0.5)
    with torch.no_grad():
        kernel.raw_branch_scale.fill_(100.0)
    assert float(kernel.branch_scale.detach()) <= 1.0


def test_wrong_options_are_refused_at_once():
    with pytest.raises(InvalidInputError, match="depth must be at least 1"):
        GPyTorchResidualKernel(0)
