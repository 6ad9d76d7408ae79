"""The same networks on a GPU."""

import pytest
import torch

from skiplens.base.randomness import Randomness
from skiplens.linalg.second_moments import second_moments
from skiplens.training.batched.chains import Units, train_linear_networks, train_rectified_networks
from skiplens.training.batched.plan import BatchedPlan, drawn_starts
from skiplens.zoo.weight_laws import xavier_weights
from tests.papers.li2016_shortcuts.hessian.reference import data
from tests.tolerances import assert_close

pytestmark = pytest.mark.gpu

RATES = torch.tensor([0.02, 40.0, 0.05])
PLAN = BatchedPlan(60, record_at=(0, 30), snapshots_at=(30,))


def starts():
    """Small ones: at the first and the last rate no kind of network diverges."""
    return 0.1 * drawn_starts(xavier_weights, 6, 10, [Randomness(2).child(net) for net in range(3)])


def linear(device, units):
    return train_linear_networks(starts().to(device), RATES.to(device), second_moments(*data(10, 40)), PLAN, units)


def rectified(device, shortcut):
    return train_rectified_networks(starts().to(device), RATES.to(device), data(10, 40), PLAN, shortcut)


@pytest.mark.parametrize(
    ("train", "kind"),
    [(linear, Units(1)), (linear, Units(2)), (linear, Units(3)), (linear, Units(2, False)), (rectified, False)],
)
def test_a_gpu_gives_the_numbers_of_the_processor(train, kind):
    there, here = train("cuda", kind), train("cpu", kind)
    assert there.weights.is_cuda and torch.equal(there.diverged, here.diverged)
    assert_close(there.weights[[0, 2]].cpu(), here.weights[[0, 2]], 1e-10)
    assert_close(there.weights_at(30)[[0, 2]].cpu(), here.weights_at(30)[[0, 2]], 1e-10)
    assert_close(there.loss_history[:, [0, 2]].cpu(), here.loss_history[:, [0, 2]], 1e-10)
