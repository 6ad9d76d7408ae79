"""Gradient descent of the theory note with the closed-form gradient: losses, norms, step of the largest gradient."""

import pytest
import torch

from skiplens.linalg.second_moments import second_moments
from skiplens.papers.li2016_shortcuts.hessian.activations import BranchActivations
from skiplens.papers.li2016_shortcuts.hessian.exact import shortcut_outputs, square_loss, unflatten
from skiplens.papers.li2016_shortcuts.hessian.linear import linear_gradient, linear_loss, shortcut_units
from tests.papers.li2016_shortcuts.hessian.reference import data, stacked
from tests.tolerances import assert_close

# losses at steps 0, 10, 100, 1000; mean Frobenius norm at 1000; step of the largest gradient (None: still growing)
RUNS = {
    (3, 2): (0.1, (0.9085137883467, 0.9083740619365, 0.8190657325590, 0.3028699152214), 1.2490816147, 115),
    (3, 1): (0.05, (0.9107985958251, 0.5286472562117, 0.3322111838067, 0.3043831188703), 0.6587240853, 0),
    (3, 3): (0.1, (0.9084246075061, 0.9084245966857, 0.9084244965768, 0.9084228052851), 0.0193258862, None),
    (10, 2): (0.1, (2.1670724904378, 2.1604306807039, 0.9937031094121, 0.3931363395654), 1.6378430219, 57),
    (10, 1): (0.05, (2.1754154399169, 0.6983843252008, 0.4306437805334, 0.3894873165355), 0.6290304312, 0),
    (10, 3): (0.1, (2.1670726139488, 2.1670705446725, 2.1670516023524, 1.7704900216359), 0.4332437254, 808),
}


@pytest.mark.parametrize(("d", "branch_depth"), [
    run if run == (3, 2) else pytest.param(*run, marks=pytest.mark.slow) for run in RUNS
])  # fmt: skip
def test_linear_runs(d, branch_depth):
    rate, expected, norm, peak = RUNS[d, branch_depth]
    weights, moments = stacked(d, 6 if d == 3 else 12, 0.01), second_moments(*data(d, 8 if d == 3 else 40))
    losses, gradient_norms = [], []
    for step in range(1001):
        units = shortcut_units(weights, branch_depth)
        gradient = linear_gradient(units, moments)
        gradient_norms.append(gradient.norm())
        if step in (0, 10, 100, 1000):
            losses.append(linear_loss(units, moments))
        if step < 1000:
            weights = weights - rate * unflatten(gradient, d)
    assert_close(torch.stack(losses), torch.tensor(expected), relative=1e-8)  # the note's tolerance for trajectories
    assert_close(weights.flatten(1).norm(dim=1).mean(), torch.tensor(norm), relative=1e-8)
    assert int(torch.stack(gradient_norms).argmax()) == (1000 if peak is None else peak)


def test_rectified_run():
    weights, (x, y) = stacked(10, 12, 0.01), data(10, 40)
    losses = []
    for step in range(201):
        leaf = weights.clone().requires_grad_()
        loss = square_loss(shortcut_outputs(leaf, x, 2, BranchActivations(mid="relu")), y)
        if step in (0, 10, 100, 200):
            losses.append(loss.detach())
        if step == 100:
            norm = weights.flatten(1).norm(dim=1).mean()
        weights = weights - 0.1 * torch.autograd.grad(loss, leaf)[0]
    expected = torch.tensor([2.1670837836065, 2.1649326577444, 1.5858211666639, 0.6350595616527])
    assert_close(torch.stack(losses), expected, relative=1e-8)
    assert_close(norm, torch.tensor(0.5932668132), relative=1e-8)
