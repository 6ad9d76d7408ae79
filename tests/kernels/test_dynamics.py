"""Training in the kernel regime: against step-by-step iteration, an ODE solver, Monte-Carlo and trained networks."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from skiplens.base.errors import InvalidInputError
from skiplens.kernels.architectures import ResNetKernel
from skiplens.kernels.dynamics import Start, Unseen, gradient_descent, gradient_flow, largest_learning_rate
from tests.kernels import finite_networks
from tests.tolerances import STANDARD_ERRORS


@pytest.fixture
def problem(generator):
    X, Z = torch.randn(6, 3, generator=generator), torch.randn(4, 3, generator=generator)
    kernel = ResNetKernel(3, 2, 0.5)
    draw = lambda rows: torch.randn(rows, 2, generator=generator)  # noqa: E731 - three shapes of one draw
    return kernel.ntk(X), kernel.ntk(Z, X), draw(6), draw(6), draw(4)


def test_descent_equals_its_steps(problem):
    K, across, targets, start, elsewhere = problem
    rate = 0.3 * largest_learning_rate(K)
    f, g, losses, seen, unseen = start, elsewhere, [], [], []
    for _ in range(31):
        seen.append(f), unseen.append(g), losses.append((f - targets).square().sum())
        f, g = f - 2 * rate * K @ (f - targets), g - 2 * rate * across @ (f - targets)
    steps = torch.tensor([0, 1, 7, 30])
    found = gradient_descent(K, targets, steps, rate, Start(start), Unseen(across, elsewhere))
    torch.testing.assert_close(found.predictions, torch.stack(seen)[steps], rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(found.unseen, torch.stack(unseen)[steps], rtol=1e-10, atol=1e-11)
    torch.testing.assert_close(found.loss, torch.stack(losses)[steps], rtol=1e-11, atol=0)


def test_flow_equals_an_ode_solver(problem):
    K, across, targets, start, elsewhere = problem
    joint = np.vstack([K.numpy(), across.numpy()])
    times = [0.0, 0.05, 0.4]

    def speed(_, state):
        f = state.reshape(10, 2)[:6]
        return (-2 * joint @ (f - targets.numpy())).ravel()

    begin = np.vstack([start.numpy(), elsewhere.numpy()]).ravel()
    solution = solve_ivp(speed, (0, 0.4), begin, t_eval=times, rtol=1e-10, atol=1e-12, method="DOP853")
    expected = torch.tensor(solution.y.T.reshape(3, 10, 2))
    found = gradient_flow(K, targets, torch.tensor(times), Start(start), Unseen(across, elsewhere))
    torch.testing.assert_close(found.predictions, expected[:, :6], rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(found.unseen, expected[:, 6:], rtol=1e-7, atol=1e-8)


def test_the_end_of_training_is_kernel_regression(problem):
    K, across, targets, _, _ = problem
    found = gradient_flow(K, targets, torch.tensor([1e9]), unseen=Unseen(across))
    torch.testing.assert_close(found.unseen[0], across @ torch.linalg.solve(K, targets), rtol=1e-8, atol=1e-9)
    assert float(found.loss) < 1e-20


def test_a_singular_kernel_learns_nothing_in_its_null_space():
    K, targets = torch.diag(torch.tensor([1.0, 0.0])), torch.ones(2, 1)
    found = gradient_flow(K, targets, torch.tensor([2.0]), unseen=Unseen(torch.tensor([[0.0, 1.0]])))
    torch.testing.assert_close(found.predictions[0, :, 0], torch.tensor([1 - np.exp(-4.0), 0.0]))
    assert float(found.unseen) == 4.0  # ∫ 2 dt over t = 2 with a residual that stays 1


def test_descent_diverges_beyond_the_largest_learning_rate(problem):
    K, _, targets, _, _ = problem
    limit = largest_learning_rate(K)
    steps = torch.tensor([0, 200])
    below, above = (gradient_descent(K, targets, steps, factor * limit).loss for factor in (0.99, 1.1))
    assert below[1] < below[0] < above[1]


def test_mean_loss_of_random_networks_against_monte_carlo(problem, generator):
    K, _, targets, _, _ = problem
    A = torch.randn(6, 6, generator=generator)
    covariance = A @ A.T / 6
    times = torch.tensor([0.0, 0.1])
    found = gradient_flow(K, targets, times, Start(covariance=covariance)).loss
    root = torch.linalg.cholesky(covariance)
    draws = torch.stack(
        [
            gradient_flow(K, targets, times, Start(root @ torch.randn(6, 2, generator=generator))).loss
            for _ in range(400)
        ]
    )
    error = draws.std(0) / len(draws) ** 0.5
    assert ((draws.mean(0) - found).abs() < STANDARD_ERRORS * error).all()


def train(weights, forward, X, targets, rate, steps):
    """Gradient descent on ‖f − y‖², returning predictions after each wanted step."""
    leaves, seen = [W.clone().requires_grad_() for W in weights], {}
    for step in range(max(steps) + 1):
        f = forward(leaves, X)
        if step in steps:
            seen[step] = f.detach()
        gradients = torch.autograd.grad((f - targets).square().sum(), leaves)
        with torch.no_grad():
            for W, gradient in zip(leaves, gradients, strict=True):
                W -= rate * gradient
    return torch.stack([seen[step] for step in steps])


def test_a_trained_wide_network_follows_its_own_kernel(generator):
    X = torch.randn(5, 3, generator=generator)
    targets, steps = torch.randn(5, generator=generator), [0, 5, 20, 60]
    deviations = []
    for width in (64, 1024):
        weights, forward = finite_networks.resnet(generator, 3, width, 2, 2, 0.5)
        K, start = finite_networks.tangent_kernel(weights, forward, X)
        rate = 0.2 * largest_learning_rate(K)
        expected = gradient_descent(K, targets[:, None], torch.tensor(steps), rate, Start(start[:, None]))
        found = train(weights, forward, X, targets, rate, steps)
        deviations.append(float((found - expected.predictions[:, :, 0]).norm() / (start - targets).norm()))
    # the kernel moves by O(1/√width): the narrow network may miss by a lot, the wide one by a few of 1/√1024 = 3 %
    assert deviations[1] < 0.1 and deviations[1] < deviations[0]


def test_the_mean_of_trained_wide_networks_follows_the_limit(generator):
    X = torch.randn(4, 3, generator=generator)
    targets, steps, width = torch.randn(4, 1, generator=generator), [0, 10, 40], 256
    kernel = ResNetKernel(2, 2, 0.5)
    rate = 0.2 * largest_learning_rate(kernel.ntk(X))
    expected = gradient_descent(kernel.ntk(X), targets, torch.tensor(steps), rate, Start(covariance=kernel.nngp(X)))
    runs = torch.stack(
        [
            train(*finite_networks.resnet(generator, 3, width, 2, 2, 0.5), X, targets[:, 0], rate, steps)
            for _ in range(30)
        ]
    )
    error = runs.std(0) / len(runs) ** 0.5
    # finite width shifts the mean by O(1/width) of the residual; 10/256 covers two blocks of two matrices
    assert ((runs.mean(0) - expected.predictions[:, :, 0]).abs() < STANDARD_ERRORS * error + 10 / width).all()
    losses = (runs - targets[:, 0]).square().sum(2)
    spread = losses.std(0) / len(losses) ** 0.5
    assert ((losses.mean(0) - expected.loss).abs() < STANDARD_ERRORS * spread + 10 / width * expected.loss[0]).all()


def test_wrong_times_and_rates_are_refused(problem):
    K, _, targets, _, _ = problem
    with pytest.raises(InvalidInputError, match=r"times must not be negative, got -1\.0"):
        gradient_flow(K, targets, torch.tensor([-1.0]))
    with pytest.raises(InvalidInputError, match=r"steps must not be negative .* positive, got 3 and 0\.0"):
        gradient_descent(K, targets, torch.tensor([3]), 0.0)
