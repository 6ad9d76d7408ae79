import pytest
import torch
from torch import nn

from skiplens.base.errors import InvalidInputError
from skiplens.edits.lesions import exchangeable, output_with, reordered, without_blocks
from skiplens.graph.dissect import dissect
from tests.networks import Formula, drawn, noise
from tests.tolerances import assert_close


class Block(nn.Module):
    def __init__(self, inputs: int = 3, outputs: int = 3) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(inputs, 5), nn.Tanh(), nn.Linear(5, outputs))
        self.project = nn.Linear(inputs, outputs, bias=False) if inputs != outputs else nn.Identity()

    def forward(self, x):
        return self.project(x) + self.branch(x)


@pytest.fixture
def model():
    return drawn(nn.Sequential(Block(), Block(), Block(3, 4), Block(4, 4), nn.Linear(4, 2)))


def test_deleted_blocks_leave_their_shortcut(model):
    x = noise(4, 3)
    network = dissect(model, x)
    deleted = without_blocks(network, ["0", "2"])
    assert_close(deleted, model[4](model[3](model[2].project(model[1](x)))))
    assert_close(without_blocks(network, []), model(x))


def test_blocks_run_in_another_order(model):
    x = noise(4, 3)
    network = dissect(model, x)
    assert_close(reordered(network, ["1", "0"]), model[4](model[3](model[2](model[0](model[1](x))))))
    assert_close(reordered(network, ["0", "1"]), model(x))


def test_a_block_is_replaced_by_a_function(model):
    x = noise(4, 3)
    doubled = output_with(dissect(model, x), {"1": lambda h: 2 * h})
    assert_close(doubled, model[4](model[3](model[2](2 * model[0](x)))))


def test_which_blocks_can_be_exchanged(model):
    assert exchangeable(dissect(model, noise(4, 3))) == [["0", "1"]]


def test_wrong_lesions_are_refused(model):
    network = dissect(model, noise(4, 3))
    with pytest.raises(InvalidInputError, match="has no block 'x'"):
        without_blocks(network, ["x"])
    with pytest.raises(InvalidInputError, match=r"made shape \(4, 1\).*join has shape \(4, 3\)"):
        output_with(network, {"0": lambda h: h[:, :1]})
    with pytest.raises(InvalidInputError, match=r"inputs and outputs have one shape; these have \(4, 3\) and \(4, 4\)"):
        reordered(network, ["0", "3"])
    with pytest.raises(InvalidInputError, match="named twice in the order 0, 0"):
        reordered(network, ["0", "0"])


def test_a_block_inside_another_cannot_be_exchanged():
    inner = Formula(lambda m, x: x + m.f(x), f=nn.Linear(3, 3))
    model = drawn(Formula(lambda m, x: x + m.g(m.inner(x)), inner=inner, g=nn.Linear(3, 3)))
    network = dissect(model, noise(2, 3))
    names = [block.name for block in network.blocks if block.parent is not None]
    with pytest.raises(InvalidInputError, match="lies inside another one"):
        reordered(network, names)


def test_the_model_is_not_changed(model):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    without_blocks(dissect(model, noise(4, 3)), ["0"])
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
