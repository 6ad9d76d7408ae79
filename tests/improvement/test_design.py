"""Designs: what theory proposes without data, and what a choice is worth with them."""

import sys
from types import SimpleNamespace

import pytest
import torch

import skiplens as sl
from skiplens.base.errors import InvalidInputError
from skiplens.zoo.blueprint import Blueprint


def data(samples=256):
    inputs = torch.randn(samples, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    return inputs, inputs[:, :3].argmax(1)


@pytest.mark.parametrize("seed", [0, 3])
def test_theory_alone(seed):
    found = sl.design((3, 16, 16), 10, depth=20, width=8, family="resnet", seed=seed)
    assert (
        found.seed == seed
        and found.forecast is None
        and found.blueprint.shortcut == 2
        and found.blueprint.branches == "zero"
    )
    assert [choice.name for choice in found.choices] == ["shortcut", "branches", "norm", "start"]
    pasted = {}
    exec(found.code, pasted)
    images = torch.randn(2, 3, 16, 16)
    assert torch.equal(pasted["model"](images), found.model(images))


def judged_by(monkeypatch, score):
    """Forecasts whose score is known: `score(model, seed)`."""
    made = []

    def forecast(model, data, *, cost, seed, **asked):
        made.append(seed)
        return SimpleNamespace(score=score(model, seed), sentence="")

    monkeypatch.setattr(sys.modules["skiplens.improvement.design"], "forecast", forecast)
    return made


def same(model, plan, seed=0):
    """Whether it is what the plan builds, weight for weight."""
    state, wanted = model.state_dict(), plan.build(seed).state_dict()
    return state.keys() == wanted.keys() and all(torch.equal(state[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("family", ["mlp", "resnet", "transformer"])
@pytest.mark.parametrize("shortcut", [2, 0])
def test_the_usual_network_is_taken_where_it_is_better(monkeypatch, family, shortcut):
    shape = {"mlp": (8,), "resnet": (3, 8, 8), "transformer": (5, 8)}[family]
    norm = "layer" if family == "transformer" else "batch"
    usual = Blueprint(family, shape, 3, 8, 8, shortcut=shortcut, branches="plain", norm=norm)
    judged_by(monkeypatch, lambda model, seed: -1.0 if same(model, usual, seed) else 0.0)
    found = sl.design(shape, 3, depth=8, width=8, family=family, data=(torch.randn(64, *shape), torch.arange(64) % 3))
    assert found.blueprint == usual and same(found.model, usual)
    (branches,) = (choice for choice in found.choices if choice.name == "branches")
    assert branches.reason.startswith("in the place of theory's 'zero'")


def test_luck_from_one_start_changes_nothing(monkeypatch):
    theory = Blueprint("mlp", (8,), 3, 8, 8)
    lucky = judged_by(monkeypatch, lambda model, seed: 0.0 if same(model, theory, seed) else -0.5 if seed == 4 else 0.3)
    found = sl.design(8, 3, depth=8, width=8, data=data(), seed=4)
    assert found.blueprint == theory and set(lucky) == {4, 5, 6}
    judged_by(monkeypatch, lambda model, seed: 0.0 if same(model, theory, seed) else -0.5 if seed == 4 else 0.0)
    assert sl.design(8, 3, depth=8, width=8, data=data(), seed=4).blueprint != theory, "a mean of −0.17 is clear"


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
