import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.base.randomness import Randomness
from skiplens.linalg.second_moments import second_moments
from skiplens.training.batched.chains import Units, network_maps, train_linear_networks
from skiplens.training.batched.plan import BatchedPlan, drawn_starts
from skiplens.zoo.weight_laws import orthogonal_weights, xavier_weights
from tests.papers.li2016_shortcuts.hessian.reference import data, network_loss, stacked
from tests.papers.li2016_shortcuts.hessian.test_descent import RUNS
from tests.tolerances import assert_close
from tests.training.batched.descent import descend


@pytest.mark.parametrize(("d", "branch_depth"), RUNS)
def test_the_trajectories_of_the_note(d, branch_depth):
    rate, losses, norm, _ = RUNS[d, branch_depth]
    starts, moments = stacked(d, 6 if d == 3 else 12, 0.01)[None], second_moments(*data(d, 8 if d == 3 else 40))
    plan = BatchedPlan(1000, record_at=(0, 10, 100, 1000))
    runs = train_linear_networks(starts, torch.tensor([rate]), moments, plan, Units(branch_depth))
    assert_close(runs.loss_history[:, 0], torch.tensor(losses), 1e-12)
    assert runs.mean_norm_history[-1].item() == pytest.approx(norm, abs=6e-11)  # ten printed decimals
    assert torch.equal(runs.losses, runs.loss_history[-1])


@pytest.mark.parametrize(
    ("units", "matrices"),
    [(Units(1), 3), (Units(2), 4), (Units(3), 6), (Units(4), 8), (Units(2, False), 4), (Units(1, False), 3)],
)
def test_all_networks_descend_as_autograd_does(units, matrices, generator):
    x, y = (torch.randn(9, 4, generator=generator) for _ in range(2))
    starts = drawn_starts(xavier_weights, matrices, 4, [Randomness(7).child(net) for net in range(3)])
    rates = torch.tensor([0.01, 0.03, 0.02])
    plan = BatchedPlan(30, record_at=(0, 7, 30), snapshots_at=(7,))
    runs = train_linear_networks(starts, rates, second_moments(x, y), plan, units)
    loss = network_loss(x, y, units.branch_depth if units.shortcut else 1, shortcut=units.shortcut)
    for net in range(3):
        points, losses, slopes = descend(loss, starts[net], rates[net].item(), 30)
        assert_close(runs.weights[net], points[30], 1e-11)
        assert_close(runs.weights_at(7)[net], points[7], 1e-11)
        assert_close(runs.loss_history[:, net], torch.tensor([losses[e] for e in (0, 7, 30)]), 1e-11)
        assert_close(runs.gradient_norm_history[:, net], torch.tensor([slopes[e] for e in (0, 7, 30)]), 1e-10)
        norms = torch.stack([points[e].flatten(1).norm(dim=1).mean() for e in (0, 7, 30)])
        assert_close(runs.mean_norm_history[:, net], norms, 1e-11)


def test_maps_are_the_product_of_all_units(generator):
    weights = torch.randn(2, 4, 3, 3, generator=generator)
    W1, W2, W3, W4 = weights[1]
    eye = torch.eye(3)
    assert_close(network_maps(weights)[1], (eye + W4 @ W3) @ (eye + W2 @ W1))
    assert_close(network_maps(weights, Units(1))[1], (eye + W4) @ (eye + W3) @ (eye + W2) @ (eye + W1))
    assert_close(network_maps(weights, Units(2, shortcut=False))[1], W4 @ W3 @ W2 @ W1)


def test_float32_is_float64_to_rounding():
    x, y = data(3, 8)
    starts, rates = stacked(3, 4, 0.3)[None], torch.tensor([0.1])
    double = train_linear_networks(starts, rates, second_moments(x, y), BatchedPlan(20))
    single = train_linear_networks(starts.float(), rates, second_moments(x, y), BatchedPlan(20))
    assert single.weights.dtype == torch.float32
    assert_close(single.weights, double.weights.float(), 1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"starts": torch.zeros(2, 4, 3, 2)},
            r"starts have shape \(2, 4, 3, 2\); wanted \(nets, matrices, width, width\)",
        ),
        ({"rates": torch.ones(3)}, r"learning_rates have shape \(3,\); wanted one number above 0 for each of 2 nets"),
        ({"rates": torch.tensor([0.1, 0.0])}, "wanted one number above 0"),
        ({"units": Units(3)}, "4 matrices cannot be divided into units of 3"),
        ({"starts": torch.zeros(2, 4, 5, 5)}, "The matrices are 5 wide, but the data have 3 features"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    given = {"starts": torch.zeros(2, 4, 3, 3), "rates": torch.ones(2), "units": Units(), **change}
    with pytest.raises(InvalidInputError, match=message):
        train_linear_networks(
            given["starts"], given["rates"], second_moments(*data(3, 8)), BatchedPlan(2), given["units"]
        )


def test_starts_are_drawn_from_streams_of_their_own():
    streams = [Randomness(1).child(net) for net in range(3)]
    starts = drawn_starts(orthogonal_weights, 4, 5, streams)
    assert starts.shape == (3, 4, 5, 5)
    assert torch.equal(drawn_starts(orthogonal_weights, 2, 5, streams[1:2])[0], starts[1, :2])
    assert_close(starts @ starts.mT, torch.eye(5).expand(3, 4, 5, 5))
