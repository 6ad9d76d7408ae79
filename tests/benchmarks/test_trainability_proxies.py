"""Training-free scores against closed forms and plain loops; no score changes the model."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.trainability import proxies
from benchmarks.trainability.proxies import PROXIES, STEP_RATES
from tests.tolerances import assert_close

SAMPLES, CLASSES = 6, 3


@pytest.fixture
def batch():
    return torch.randn(SAMPLES, 4), torch.randint(0, CLASSES, (SAMPLES,))


@pytest.fixture
def linear():
    return nn.Linear(4, CLASSES, bias=False)


@pytest.fixture
def dense():
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, CLASSES))


def softmax_gradient(model, inputs, targets):
    """Of cross-entropy with respect to the matrix of a linear model: Σ (p − y) xᵀ / samples."""
    errors = (inputs @ model.weight.detach().T).softmax(1) - F.one_hot(targets, CLASSES)
    return errors.T @ inputs / len(inputs)


def test_sizes_are_counted(dense, batch):
    assert PROXIES["parameters"].score(dense, *batch) == 4 * 5 + 5 + 5 * 3 + 3
    assert PROXIES["layers"].score(dense, *batch) == 2


def test_gradient_norm_and_snip_of_a_linear_model(linear, batch):
    gradient = softmax_gradient(linear, *batch)
    assert proxies.gradient_norm(linear, *batch) == pytest.approx(float(gradient.norm()), rel=1e-12)
    wanted = float((gradient * linear.weight.detach()).abs().sum())
    assert proxies.snip(linear, *batch) == pytest.approx(wanted, rel=1e-12)


def test_grasp_is_minus_weights_times_hessian_times_gradient(linear, batch):
    def loss(weight):
        return F.cross_entropy(batch[0] @ weight.T, batch[1])

    weight = linear.weight.detach()
    hessian = torch.autograd.functional.hessian(loss, weight).reshape(12, 12)
    wanted = -weight.flatten() @ hessian @ softmax_gradient(linear, *batch).flatten()
    assert proxies.grasp(linear, *batch) == pytest.approx(float(wanted), rel=1e-10)


@pytest.mark.parametrize("norm", [nn.Identity, nn.Dropout, lambda: nn.LayerNorm(5), lambda: nn.BatchNorm1d(5)])
def test_synflow_of_a_chain_is_its_flow_once_for_each_matrix(batch, norm):
    chain = nn.Sequential(nn.Linear(4, 5, bias=False), norm(), nn.ReLU(), nn.Linear(5, CLASSES, bias=False))
    flow = (chain[3].weight.detach().abs() @ chain[0].weight.detach().abs()).sum()
    assert proxies.synflow(chain, *batch) == pytest.approx(math.log(2 * flow), rel=1e-12)


def test_synflow_of_tokens_starts_with_ones_after_the_embedding():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(7, 4), nn.Linear(4, CLASSES, bias=False)

        def forward(self, codes):
            return self.head(F.embedding(codes, self.table.weight))

    model, codes = Tokens(), torch.randint(0, 7, (SAMPLES, 2))
    wanted = math.log(2 * float(model.head.weight.detach().abs().sum()))  # two tokens
    assert proxies.synflow(model, codes, codes) == pytest.approx(wanted, rel=1e-12)


def _codes(model, inputs):
    return [(model[0](inputs) > 0).detach().numpy()]


@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU, nn.Tanh, lambda: nn.ReLU(inplace=True)])
def test_naswot_counts_equal_signs_by_loops(batch, activation):
    model = nn.Sequential(nn.Linear(4, 40), activation(), nn.Linear(40, CLASSES))
    (code,) = _codes(model, batch[0])
    kernel = [[sum(a == b for a, b in zip(left, right, strict=True)) for right in code] for left in code]
    assert proxies.naswot(model, *batch) == pytest.approx(np.linalg.slogdet(np.array(kernel, float))[1], rel=1e-10)


def test_naswot_hears_activations_that_are_functions_and_knows_none_without(linear, batch):
    class Functional(nn.Module):
        def __init__(self, inner, outer):
            super().__init__()
            self.inner, self.outer = inner, outer

        def forward(self, x):
            return self.outer(F.relu(self.inner(x)))

    inner, outer = nn.Linear(4, 40), nn.Linear(40, CLASSES)
    same = nn.Sequential(inner, nn.ReLU(), outer)
    assert proxies.naswot(Functional(inner, outer), *batch) == proxies.naswot(same, *batch)
    assert math.isnan(proxies.naswot(linear, *batch))


def test_jacobian_covariance_by_a_loop_over_samples(batch):
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, CLASSES))
    jacobians = [torch.autograd.functional.jacobian(lambda x: model(x).sum(), sample) for sample in batch[0]]
    values = np.linalg.eigvals(np.corrcoef(torch.stack(jacobians).numpy())).real.clip(0) + 1e-5
    wanted = -np.sum(np.log(values) + 1 / values)
    # Six samples of four numbers have two eigenvalues that are zero up to rounding, 1e-16 of 1e-5.
    assert proxies.jacobian_covariance(model, *batch) == pytest.approx(wanted, rel=1e-9)


def test_jacobian_covariance_of_tokens_is_taken_at_the_embedding():
    table, rest = nn.Embedding(7, 4), nn.Sequential(nn.Tanh(), nn.Flatten(), nn.Linear(8, CLASSES))
    codes, targets = torch.randint(0, 7, (SAMPLES, 2)), torch.randint(0, CLASSES, (SAMPLES,))
    wanted = proxies.jacobian_covariance(rest, table(codes).detach(), targets)
    assert proxies.jacobian_covariance(nn.Sequential(table, rest), codes, targets) == pytest.approx(wanted, rel=1e-9)


def test_zico_by_loops(linear, batch):
    inputs, targets = batch
    halves = [softmax_gradient(linear, inputs[p], targets[p]).numpy() for p in (slice(0, 3), slice(3, 6))]
    ratios = np.abs(halves).mean(0) / np.std(halves, axis=0)
    assert proxies.zico(linear, *batch) == pytest.approx(math.log(ratios.sum()), rel=1e-9)


def test_tangent_kernel_of_a_linear_model_is_that_of_its_inputs(linear, batch):
    inputs = batch[0][:3]  # more samples than inputs have no inverse
    gram = CLASSES * inputs @ inputs.T
    assert_close(proxies.tangent_kernel(linear, inputs), gram, 1e-12)
    wanted = -math.log10(np.linalg.cond(gram.numpy()))
    assert proxies.kernel_condition(linear, inputs, batch[1][:3]) == pytest.approx(wanted, rel=1e-9)


def test_loss_after_one_step_is_that_of_the_best_rate(linear, batch):
    inputs, targets = batch
    gradient = softmax_gradient(linear, *batch)
    moved = [linear.weight.detach() - rate * gradient for rate in STEP_RATES]
    wanted = min(float(F.cross_entropy(inputs @ weight.T, targets)) for weight in moved)
    assert proxies.one_step(linear, *batch) == pytest.approx(-wanted, rel=1e-12)


@pytest.mark.parametrize("name", PROXIES)
def test_no_score_changes_the_model(name, batch):
    model = nn.Sequential(
        nn.Linear(4, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Dropout(0.3), nn.Linear(40, CLASSES)
    ).eval()
    F.cross_entropy(model(batch[0]), batch[1]).backward()
    before = copy.deepcopy(model.state_dict()), [p.grad.clone() for p in model.parameters()], torch.get_rng_state()
    score = PROXIES[name].score(model, *batch)
    assert math.isfinite(score)
    assert all(torch.equal(value, before[0][key]) for key, value in model.state_dict().items())
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), before[1], strict=True))
    assert torch.equal(torch.get_rng_state(), before[2]) and not any(m.training for m in model.modules())
    assert not any(module._forward_hooks for module in model.modules())
    assert PROXIES[name].score(model, *batch) == score
