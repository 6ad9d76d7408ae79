import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.base.randomness import Randomness
from skiplens.training.batched.chains import train_rectified_networks
from skiplens.training.batched.plan import BatchedPlan, drawn_starts
from skiplens.zoo.weight_laws import xavier_weights
from tests.papers.li2016_shortcuts.hessian.reference import data, network_loss, stacked
from tests.tolerances import assert_close
from tests.training.batched.descent import descend

RELU = ("identity", "relu", "identity")


def test_the_trajectory_of_the_note():
    runs = train_rectified_networks(
        stacked(10, 12, 0.01)[None], torch.tensor([0.1]), data(10, 40), BatchedPlan(200, record_at=(0, 10, 100, 200))
    )
    expected = torch.tensor([2.1670837836065, 2.1649326577444, 1.5858211666639, 0.6350595616527])
    assert_close(runs.loss_history[:, 0], expected, 1e-12)
    assert runs.mean_norm_history[2].item() == pytest.approx(0.5932668132, abs=6e-11)  # ten printed decimals


@pytest.mark.parametrize("shortcut", [True, False])
def test_all_networks_descend_as_autograd_does(shortcut, generator):
    x, y = (torch.randn(30, 4, generator=generator) for _ in range(2))
    starts = drawn_starts(xavier_weights, 6, 4, [Randomness(3).child(net) for net in range(3)])
    rates = torch.tensor([0.02, 0.05, 0.1])
    plan = BatchedPlan(25, record_at=(0, 5, 25), snapshots_at=(5,))
    runs = train_rectified_networks(starts, rates, (x, y), plan, shortcut)
    loss = network_loss(x, y, 2, RELU, shortcut)
    for net in range(3):
        points, losses, slopes = descend(loss, starts[net], rates[net].item(), 25)
        assert_close(runs.weights[net], points[25], 1e-11)
        assert_close(runs.weights_at(5)[net], points[5], 1e-11)
        assert_close(runs.loss_history[:, net], torch.tensor([losses[e] for e in (0, 5, 25)]), 1e-11)
        assert_close(runs.gradient_norm_history[:, net], torch.tensor([slopes[e] for e in (0, 5, 25)]), 1e-10)


def test_data_are_brought_to_the_dtype_of_the_weights():
    runs = train_rectified_networks(stacked(3, 4, 0.3).float()[None], torch.tensor([0.1]), data(3, 8), BatchedPlan(20))
    double = train_rectified_networks(stacked(3, 4, 0.3)[None], torch.tensor([0.1]), data(3, 8), BatchedPlan(20))
    assert runs.losses.dtype == torch.float32
    assert_close(runs.losses, double.losses.float())


@pytest.mark.parametrize(
    ("inputs", "targets"), [(torch.zeros(3, 4), torch.zeros(3, 3)), (torch.zeros(0, 3), torch.zeros(0, 3))]
)
def test_other_data_are_refused(inputs, targets):
    with pytest.raises(InvalidInputError, match=r"must have one shape \(samples, width\)"):
        train_rectified_networks(stacked(3, 4, 0.3)[None], torch.tensor([0.1]), (inputs, targets), BatchedPlan(1))
