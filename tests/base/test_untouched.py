import pytest
import torch
from torch import nn

from skiplens.base.errors import SkiplensError
from skiplens.base.preserve_state import preserve_state


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
