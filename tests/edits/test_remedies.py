"""A remedy and its code do the same, and neither touches the given model."""

import copy

import pytest
import torch
from torch import nn

from skiplens import zoo
from skiplens.base.errors import InvalidInputError
from skiplens.edits.remedies import apply_remedy, code_of, one_program
from skiplens.graph.dissect import find_residual_blocks
from skiplens.readings.finding import Remedy
from tests.networks import drawn

REMEDIES = [
    Remedy("scale_parameters", {"factors": {"0.weight": 0.25, "2.bias": 3.0}}),
    Remedy(
        "redraw_parameters",
        {"drawn": ("0.weight", "2.weight"), "ones": ("1.weight",), "zeros": ("0.bias", "1.bias"), "seed": 7},
    ),
    Remedy("redraw_parameters", {"drawn": ("0.weight",), "ones": (), "zeros": (), "seed": 0}),
    Remedy("evaluation_mode"),
    Remedy("training_mode", {"modules": ("1",)}),
]


def network() -> nn.Module:
    return drawn(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))).eval()


def state(model: nn.Module):
    return {name: value.clone() for name, value in model.state_dict().items()}, [m.training for m in model.modules()]


def same(left, right) -> bool:
    return left[1] == right[1] and all(torch.equal(value, right[0][name]) for name, value in left[0].items())


@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda remedy: remedy.name)
def test_the_code_does_what_the_remedy_does(remedy):
    model = network().train() if remedy.name == "evaluation_mode" else network()
    before = state(model)
    applied = apply_remedy(remedy, model)
    assert same(before, state(model)) and not same(before, state(applied))
    pasted = copy.deepcopy(model)
    exec(code_of(remedy), {"model": pasted})
    assert same(state(pasted), state(applied))


def test_redrawn_weights_are_he_sized():
    model = nn.Sequential(nn.Linear(400, 300))
    remedy = Remedy("redraw_parameters", {"drawn": ("0.weight",), "ones": (), "zeros": (), "seed": 0})
    variance = float(apply_remedy(remedy, model)[0].weight.detach().var())
    # The variance of a Gaussian's sample variance is 2/n.
    assert abs(variance / (2 / 400) - 1) < 4 * (2 / 120_000) ** 0.5


@pytest.mark.slow
def test_pools_beside_projections():
    model, inputs = zoo.build("preact_resnet18", width=4), torch.randn(2, 3, 16, 16)
    remedy = Remedy("add_average_pool_skips", {"blocks": ("stages.1.0.residual",)})
    changed = apply_remedy(remedy, model, inputs)
    assert find_residual_blocks(changed, inputs)[2].shortcut.kind == "pooling"
    names = {"model": copy.deepcopy(model), "inputs": inputs}
    exec(code_of(remedy), names)
    assert torch.equal(names["model"].eval()(inputs), changed.eval()(inputs))
    with pytest.raises(InvalidInputError, match="needs inputs of the model"):
        apply_remedy(remedy, model)


def test_an_unknown_remedy_is_named():
    with pytest.raises(InvalidInputError, match=r"no remedy 'scale_parameter'\. Did you mean scale_parameters"):
        apply_remedy(Remedy("scale_parameter"), network())


def test_imports_of_joined_code_stand_first_and_once():
    he, orthogonal = (code_of(Remedy(name, {"seed": seed})) for seed, name in enumerate(("he", "orthogonal")))
    lines = one_program([he, "", orthogonal]).splitlines()
    assert lines[:3] == ["import skiplens as sl", "from skiplens.base.randomness import Randomness", ""]
    assert [line[:30] for line in lines[3:]] == ["model = sl.initialisation.he(m", "model = sl.initialisation.orth"]
    pasted = {"model": nn.Linear(3, 2)}
    exec("\n".join(lines), pasted)
    assert torch.allclose(pasted["model"].weight @ pasted["model"].weight.T, torch.eye(2), atol=1e-6)
