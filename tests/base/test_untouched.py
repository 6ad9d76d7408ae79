import random

import numpy as np
import pytest
import torch
from torch import nn

from skiplens.base.errors import SkiplensError
from skiplens.base.preserve_state import preserve_random_state, preserve_state


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))


def everything(model: nn.Module) -> list:
    return [
        *(t.clone() for t in model.state_dict().values()),
        *(None if p.grad is None else p.grad.clone() for p in model.parameters()),
        *(p.requires_grad for p in model.parameters()),
        *(m.training for m in model.modules()),
        *(len(m._forward_hooks) for m in model.modules()),
        torch.get_rng_state(),
    ]


def same(left: list, right: list) -> bool:
    return len(left) == len(right) and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(left, right, strict=True)
    )


def disturb(model: nn.Module) -> None:
    model(torch.randn(5, 3)).sum().backward()
    model.eval()
    model[0].weight.requires_grad_(False)
    model[3].register_forward_hook(lambda *_: None)


@pytest.mark.parametrize("with_gradients", [False, True])
def test_everything_is_put_back(with_gradients):
    model = network()
    if with_gradients:
        model(torch.randn(5, 3)).sum().backward()
    before = everything(model)
    with preserve_state(model):
        disturb(model)
        assert not same(before, everything(model))
    assert same(before, everything(model))


def test_everything_is_put_back_after_an_error():
    model = network()
    before = everything(model)
    with pytest.raises(ZeroDivisionError), preserve_state(model):
        disturb(model)
        raise ZeroDivisionError
    assert same(before, everything(model))


def test_a_nan_buffer_does_not_confuse_it():
    model = network()
    model[1].running_mean.fill_(float("nan"))
    with preserve_state(model):
        model(torch.randn(5, 3))
    assert model[1].running_mean.isnan().all()


def test_a_model_that_changes_its_own_parameters_is_named():
    model = network()
    with (
        pytest.raises(SkiplensError, match=r"changes its own parameters .*: 0\.weight"),
        preserve_state(model),
    ):
        with torch.no_grad():
            model[0].weight.add_(1.0)


def test_random_states_are_put_back():
    def drawn() -> tuple[float, float, float]:
        return torch.rand(()).item(), np.random.rand(), random.random()  # noqa: NPY002

    with preserve_random_state():
        first = drawn()
    assert drawn() == first
    with pytest.raises(KeyboardInterrupt), preserve_state(network()):
        second = drawn()
        raise KeyboardInterrupt
    assert drawn() == second


def test_what_a_forward_pass_leaves_behind_is_taken_away():
    model = network()
    model.cache, model.log = torch.ones(2), [1]
    buffers, cache = dict(model[1]._buffers), model.cache
    with preserve_state(model):
        model[1].register_buffer("made", torch.ones(1))
        model[1].running_mean = torch.ones(4)
        model[1].running_var.resize_(9)
        model.cache.add_(1.0)
        model.log.append(2)
        model.new = 3
    assert list(model[1]._buffers) == list(buffers) and model[1].running_mean is buffers["running_mean"]
    assert torch.equal(model[1].running_var, torch.ones(4)) and not hasattr(model, "new") and model.log == [1]
    assert model.cache is cache and torch.equal(cache, torch.ones(2))


@pytest.mark.parametrize("by", ["data", "values", "object"])
def test_a_changed_parameter_is_put_back(by):
    model = network()
    weight, before, place = model[0].weight, model[0].weight.detach().clone(), model[0].weight.data_ptr()
    with pytest.raises(SkiplensError, match=r"changes its own parameters .*: 0\.weight"), preserve_state(model):
        with preserve_state(model):  # one inside another
            if by == "data":
                weight.data = torch.zeros(4, 3)
            elif by == "values":
                weight.data.mul_(2)
            else:
                model[0].weight = nn.Parameter(torch.zeros(4, 3))
    assert model[0].weight is weight and weight.data_ptr() == place and torch.equal(weight, before)
