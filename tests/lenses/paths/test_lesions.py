import torch
import torch.nn.functional as F
from torch import nn

from skiplens.lenses.paths import lesion_study
from tests.networks import Formula, drawn, mlp, noise


def test_losses_of_every_deletion_and_exchange():
    blocks = [Formula(lambda m, x: x + m.f(x), f=mlp()) for _ in range(3)]
    model = drawn(nn.Sequential(*blocks, nn.Linear(3, 2)))
    inputs, targets = noise(6, 3), noise(6, 2, seed=1)

    def loss_of(*order):
        x = inputs
        for number in order:
            x = blocks[number](x)
        return F.mse_loss(model[3](x), targets).item()

    study = lesion_study(model, inputs, targets, F.mse_loss)
    assert torch.isclose(torch.tensor(study.intact), torch.tensor(loss_of(0, 1, 2)), rtol=1e-12)
    expected = {"0": loss_of(1, 2), "1": loss_of(0, 2), "2": loss_of(0, 1)}
    assert all(abs(study.deleted[name] / expected[name] - 1) < 1e-12 for name in expected)
    swapped = {("0", "1"): loss_of(1, 0, 2), ("1", "2"): loss_of(0, 2, 1)}
    assert set(study.exchanged) == set(swapped)
    assert all(abs(study.exchanged[pair] / swapped[pair] - 1) < 1e-12 for pair in swapped)
