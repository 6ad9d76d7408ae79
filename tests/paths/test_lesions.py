import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from skiplens.base.errors import InvalidInputError, NotResidualError
from skiplens.paths.lesions import lesion_study, replaced_loss, shuffled_losses
from tests.networks import Formula, chain, drawn, mlp, noise


def test_losses_of_every_deletion_and_exchange():
    blocks = [Formula(lambda m, x: x + m.f(x), f=mlp()) for _ in range(3)]
    model = drawn(nn.Sequential(*blocks, nn.Linear(3, 2)))
    inputs, targets = noise(6, 3), noise(6, 2, seed=1)

    def loss_of(*order):
        x = inputs
        for number in order:
            x = blocks[number](x)
        return F.mse_loss(model[3](x), targets).item()

    study = lesion_study(model, (inputs, targets), loss="mse")
    assert torch.isclose(torch.tensor(study.intact), torch.tensor(loss_of(0, 1, 2)), rtol=1e-12)
    expected = {"0": loss_of(1, 2), "1": loss_of(0, 2), "2": loss_of(0, 1)}
    assert all(abs(study.deleted[name] / expected[name] - 1) < 1e-12 for name in expected)
    swapped = {("0", "1"): loss_of(1, 0, 2), ("1", "2"): loss_of(0, 2, 1)}
    assert set(study.exchanged) == set(swapped)
    assert all(abs(study.exchanged[pair] / swapped[pair] - 1) < 1e-12 for pair in swapped)


def three_blocks():
    blocks = [Formula(lambda m, x: x + m.f(x), f=mlp()) for _ in range(3)]
    return blocks, drawn(nn.Sequential(*blocks, nn.Linear(3, 2))), noise(6, 3), noise(6, 2, seed=1)


def test_losses_of_random_orders_are_among_those_of_all_orders():
    blocks, model, inputs, targets = three_blocks()
    every = []
    for order in itertools.permutations(blocks):
        every.append(F.mse_loss(model[3](nn.Sequential(*order)(inputs)), targets).item())
    losses = shuffled_losses(model, (inputs, targets), loss=F.mse_loss, draws=30, seed=1)
    assert all(min(abs(loss / one - 1) for one in every) < 1e-12 for loss in losses.tolist())
    assert len({round(loss, 9) for loss in losses.tolist()}) > 3  # 30 draws of 6 orders miss three with chance < 1e-7
    again = shuffled_losses(model, (inputs, targets), loss=F.mse_loss, draws=30, seed=1)
    assert torch.equal(losses, again)


def test_the_loss_with_a_block_replaced():
    blocks, model, inputs, targets = three_blocks()
    expected = F.mse_loss(model[3](blocks[2](2 * blocks[0](inputs))), targets).item()
    batches = [(inputs[:2], targets[:2]), (inputs[2:], targets[2:])]
    found = replaced_loss(model, batches, {"1": lambda x: 2 * x}, loss=F.mse_loss)
    assert found == pytest.approx(expected, rel=1e-12)


def test_bad_input():
    _, model, inputs, targets = three_blocks()
    with pytest.raises(InvalidInputError, match="draws=0; ask for at least 1"):
        shuffled_losses(model, (inputs, targets), loss=F.mse_loss, draws=0)
    with pytest.raises(NotResidualError, match="nothing to shuffle"):
        shuffled_losses(chain(), (noise(2, 3), noise(2, 3)), loss=F.mse_loss)
    with pytest.raises(InvalidInputError, match="has no block 'x'"):
        replaced_loss(model, (inputs, targets), {"x": lambda x: x}, loss=F.mse_loss)
