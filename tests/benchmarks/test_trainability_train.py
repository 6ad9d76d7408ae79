"""Networks that are trained as one program go where plain training takes them."""

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.trainability import train
from benchmarks.trainability.networks import NETWORKS, Network
from benchmarks.trainability.tasks import TASKS, Task


class Scaled(nn.Module):
    """A number as a parameter: what has no axis at all."""

    def __init__(self):
        super().__init__()
        self.inner, self.scale = nn.Linear(4, 3), nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        return self.scale * self.inner(x)


def work():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(640, 4, generator=generator)
    return Task("made", inputs, (inputs[:, 0] > 0).long() + (inputs[:, 1] > 1).long(), 3)


PLAIN = {
    "adam": lambda parameters, rate: torch.optim.Adam(parameters, lr=rate),
    "sgd": lambda parameters, rate: torch.optim.SGD(parameters, lr=rate, momentum=0.9),
}


@pytest.mark.parametrize("optimizer", PLAIN)
def test_every_network_of_a_grid_is_a_plain_training(optimizer):
    torch.set_default_dtype(torch.float32)
    network = Network("made", "made", "made", lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh(), Scaled()))
    losses = train.train(network, optimizer, work(), "cpu", train.Length(12))
    assert losses.shape == (2, 7, 12)
    for seed in (0, 1):
        for place in (0, 3, 5):
            model, batches = train.build(network, seed), work().batches(seed)
            moved = PLAIN[optimizer](model.parameters(), train.RATES[optimizer][place])
            for step in range(12):
                inputs, targets = next(batches)
                loss = train.cross_entropy(model(inputs), targets)
                assert losses[seed, place, step] == pytest.approx(float(loss.detach()), rel=1e-4)  # float32, 12 steps
                moved.zero_grad()
                loss.backward()
                moved.step()


def test_windows_are_infinite_from_the_first_loss_that_is_no_number():
    losses = np.ones((1, 1, 40))
    losses[..., 15] = np.nan
    assert train.windows(losses).tolist() == [[[1.0, np.inf, np.inf, np.inf]]]


def test_there_are_enough_networks_of_every_kind():
    networks = list(NETWORKS.values())
    assert len(networks) >= 150
    assert len({network.family for network in networks}) >= 6
    assert {network.task for network in networks} == set(TASKS)
