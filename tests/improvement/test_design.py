"""Designs: what theory proposes without data, and what a choice is worth with them."""

import pytest
import torch

import skiplens as sl
from skiplens.base.errors import InvalidInputError


def data(samples=256):
    inputs = torch.randn(samples, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    return inputs, inputs[:, :3].argmax(1)


def test_theory_alone():
    found = sl.design((3, 16, 16), 10, depth=20, width=8, family="resnet")
    assert found.forecast is None and found.blueprint.shortcut == 2 and found.blueprint.branches == "zero"
    assert [choice.name for choice in found.choices] == ["shortcut", "branches", "norm", "start"]
    pasted = {}
    exec(found.code, pasted)
    images = torch.randn(2, 3, 16, 16)
    assert torch.equal(pasted["model"](images), found.model(images))


@pytest.mark.slow
def test_with_data_each_choice_has_a_worth():
    torch.set_default_dtype(torch.float32)  # the suite measures in float64; the data here are as people have them
    before = torch.random.get_rng_state()
    found = sl.design(8, 3, depth=30, width=16, data=data(), steps=100)
    assert torch.equal(before, torch.random.get_rng_state())
    assert found.forecast.cost <= 70 and found.forecast.rate > 0
    judged = {choice.name: choice.worth for choice in found.choices if choice.without is not None}
    assert judged["shortcut"] > 1.5, "30 layers without a shortcut do not learn in 100 steps"
    assert found.forecast.sentence in str(found)


def test_data_of_another_shape_are_refused():
    with pytest.raises(InvalidInputError, match=r"\(8,\).*\(9,\)"):
        sl.design(9, 3, depth=10, width=8, data=data())
