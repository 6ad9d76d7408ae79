import pytest
import torch
import torch.nn.functional as F
from torch import nn

from skiplens import zoo
from skiplens.base.errors import InvalidInputError
from skiplens.graph.dissect import dissect
from skiplens.papers.littwin2016_ensembles.dynamics import scale_drive
from skiplens.paths.backward import weight_paths
from skiplens.paths.forces import GatedLoss, block_scales, depth_forces, weight_scale
from tests.networks import Formula, PostActivation, chain, drawn, linear, noise
from tests.paths.frozen_by_hand import Perceptrons
from tests.tolerances import assert_close

DIRECTION = noise(6, 50, seed=4)


def linear_loss(output, targets):
    """A loss that is linear in the output, as those of the theorems are."""
    return (output * DIRECTION).sum() / 10


def bias_free(**options):
    network = zoo.build("ensemble_resnet", depth=5, width=12, weight_scale=0.8, output_scale=1.0, **options)
    return network.double(), noise(6, 20), torch.tensor([3, 1, 4, 1, 5, 9])


def forces_of(model, inputs, targets, loss=F.cross_entropy, rate=1e-4):
    return depth_forces(dissect(model, inputs), targets, loss, rate)


@pytest.mark.parametrize("branch", ["relu", "two_layer", "linear"])
def test_eulers_identity_holds_without_biases_and_norms(branch):
    model, inputs, targets = bias_free(branch=branch)
    forces = forces_of(model, inputs, targets)
    assert_close(forces.block_slope.predicted, forces.block_slope.measured, relative=1e-11)
    assert_close(forces.radial_slope.predicted, forces.radial_slope.measured, relative=1e-10)
    # ‖W‖² is of order 10 and its change of 1e-4 times the slope, so that rounding leaves nine digits or so
    assert_close(forces.norm_change.predicted, forces.norm_change.measured, relative=1e-8)


@pytest.mark.parametrize("branch", ["relu", "two_layer"])
def test_theorems_three_and_four_are_the_leading_order_for_a_linear_loss(branch):
    """Ten times smaller steps leave ten times smaller errors."""
    model, inputs, targets = bias_free(branch=branch)
    for name in ("block_drive", "scale_drive"):
        errors = []
        for rate in (1e-6, 1e-7):
            force = getattr(forces_of(model, inputs, targets, linear_loss, rate), name)
            errors.append(float((force.measured - force.predicted).abs().max() / force.predicted.abs().max()))
        assert errors[0] < 1e-3
        assert errors[1] < errors[0] / 5 or errors[1] < 1e-7  # 1e-7: differences of slopes over a step of 1e-7


def test_theorem_four_is_the_closed_form_of_the_theory():
    model, inputs, targets = bias_free(branch="relu")
    network = dissect(model, inputs)
    gated = GatedLoss(network, targets, F.cross_entropy)
    here = gated.slopes(gated.weights)
    stacks = dict(weight_paths(network, here.weights, here.output))
    rows = torch.stack(
        [
            torch.cat([s[r].flatten() if r < len(s) else torch.zeros(s[0].numel()) for s in stacks.values()])
            for r in range(5)
        ]
    )
    expected = scale_drive(rows, torch.arange(5.0))
    assert_close(forces_of(model, inputs, targets).scale_drive.predicted, expected, relative=1e-10)


def test_the_measured_drive_of_a_curved_loss_is_that_of_its_hessian():
    """g·(g + Hw): what theorem 4 leaves out is the curvature of the loss itself."""
    model, inputs, targets = bias_free(branch="relu")
    network = dissect(model, inputs)
    names = list(GatedLoss(network, targets, F.cross_entropy).weights)
    weights = [model.get_parameter(name) for name in names]
    gradient = torch.autograd.grad(F.cross_entropy(model(inputs), targets), weights, create_graph=True)
    radial = sum((g * w.detach()).sum() for g, w in zip(gradient, weights, strict=True))
    product = torch.autograd.grad(radial, weights)
    expected = sum(float((g * (g + p)).sum().detach()) for g, p in zip(gradient, product, strict=True))
    force = forces_of(model, inputs, targets, rate=1e-6).scale_drive
    assert float(force.measured) == pytest.approx(expected, rel=1e-4)
    assert float(force.measured) > float(force.predicted) > 0


def test_slopes_of_branches_with_biases_are_those_of_their_factors():
    model, inputs = drawn(Perceptrons(3, hidden=8)), noise(4, 3)
    targets = torch.tensor([0, 1, 0, 1])
    forces = forces_of(model, inputs, targets)
    assert_close(forces.block_slope.predicted, forces.block_slope.measured, relative=1e-11)
    assert abs(float(forces.radial_slope.predicted / forces.radial_slope.measured) - 1) > 1e-3  # Euler wants no biases


def test_a_normalised_weight_has_no_radial_slope_whatever_its_paths_say():
    model, inputs, targets = bias_free(scaling="centred")
    forces = forces_of(model, inputs, targets)
    assert abs(float(forces.radial_slope.measured)) < 1e-3 * abs(float(forces.radial_slope.predicted))


def test_a_step_needs_a_size():
    model, inputs, targets = bias_free()
    for rate in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidInputError, match="a step needs a size above 0"):
            forces_of(model, inputs, targets, rate=rate)


class TestScales:
    def test_the_last_normalisation_or_factor_of_each_branch(self):
        model = nn.Sequential(PostActivation(4, 4), PostActivation(4, 4))
        with torch.no_grad():
            model[0].bn1.weight.fill_(7)
            model[0].bn2.weight.copy_(torch.tensor([1.0, 1.0, 3.0, 3.0]))
            model[1].bn2.weight.fill_(-2)
        assert_close(block_scales(dissect(model, noise(2, 4, 6, 6))), torch.tensor([5**0.5, 2.0]))

    def test_a_learned_factor(self):
        scaled = Formula(
            lambda m, x: x + m.scale * m.f(x), f=linear(), scale=nn.Parameter(torch.tensor([3.0, 4.0, 5.0]))
        )
        assert_close(block_scales(dissect(scaled, noise(2, 3))), torch.tensor([(50 / 3) ** 0.5]))
        ensemble = zoo.build("ensemble_resnet", depth=3, width=4, scaling="centred").double()
        assert_close(block_scales(dissect(ensemble, noise(5, 20))), torch.ones(2))

    def test_a_branch_without_one(self):
        assert block_scales(dissect(drawn(Perceptrons(2)), noise(2, 3))).isnan().all()

    def test_weights_of_branches_alone(self):
        model = drawn(Perceptrons(2))
        with torch.no_grad():
            for layer in (*model.first, *model.second):
                layer.weight.fill_(0.5)
            model.head.weight.fill_(100.0)
        assert weight_scale(dissect(model, noise(2, 3))) == pytest.approx(0.5)
        assert weight_scale(dissect(chain(), noise(2, 3))) != weight_scale(dissect(chain(), noise(2, 3)))  # NaN
