import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.curvature.spectrum import parameters_by_block
from skiplens.graph.dissect import find_residual_blocks
from tests.networks import Formula, drawn, linear


def blocks():
    model = drawn(Formula(lambda m, x: m.project(x) + m.branch(x), project=linear(3, 4), branch=linear(3, 4)))
    return find_residual_blocks(model, torch.ones(2, 3))


def test_a_block_owns_its_branch_and_its_projection():
    (names,) = parameters_by_block(
        blocks(), {"project.weight", "project.bias", "branch.weight", "branch.bias"}
    ).values()
    assert set(names) == {"project.weight", "project.bias", "branch.weight", "branch.bias"}


def test_parameters_that_are_not_chosen_are_left_out():
    (names,) = parameters_by_block(blocks(), {"branch.weight", "head.weight"}).values()
    assert names == ("branch.weight",)
    assert parameters_by_block(blocks(), {"head.weight"}) == {}


def test_an_unknown_block_is_named():
    with pytest.raises(InvalidInputError, match="The model has no residual block 'stage'"):
        parameters_by_block(blocks(), {"branch.weight"}, ("stage",))
