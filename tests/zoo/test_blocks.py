import torch
from torch import nn

from skiplens import zoo
from skiplens.zoo.layers import Plain, ProjectionShortcut, Residual, branch_parameters, count_joins
from tests.zoo.small_networks import sines


def test_residual_is_shortcut_plus_branch():
    branch, shortcut, inputs = nn.Linear(3, 2), nn.Linear(3, 2), sines(4, 3)
    assert torch.equal(Residual(branch, shortcut)(inputs), shortcut(inputs) + branch(inputs))
    assert torch.equal(Residual(nn.Tanh())(inputs), inputs + inputs.tanh())


def test_plain_is_the_branch_under_the_same_names():
    branch, inputs = nn.Linear(3, 3), sines(4, 3)
    assert torch.equal(Plain(branch)(inputs), branch(inputs))
    assert list(Plain(branch).state_dict()) == list(Residual(branch).state_dict())


def test_projection_shortcut_adds_its_pool():
    projection, inputs = nn.Linear(3, 3), sines(4, 3)
    assert torch.equal(ProjectionShortcut(projection)(inputs), projection(inputs))
    assert torch.equal(ProjectionShortcut(projection, nn.Tanh())(inputs), inputs.tanh() + projection(inputs))


def test_branch_parameters_are_named_in_order():
    network = zoo.build("shortcut_linear", units=2)
    assert branch_parameters(network) == [
        ["0.branch.0.weight", "0.branch.1.weight"],
        ["1.branch.0.weight", "1.branch.1.weight"],
    ]
    assert branch_parameters(Residual(nn.Linear(2, 2, bias=False))) == [["branch.weight"]]


def test_joins_are_counted_wherever_they_are():
    nested = nn.Sequential(nn.Linear(2, 2), nn.Sequential(Residual(nn.Linear(2, 2)), Residual(nn.Tanh())))
    assert count_joins(nested) == 2
    assert count_joins(nn.Linear(2, 2)) == 0
