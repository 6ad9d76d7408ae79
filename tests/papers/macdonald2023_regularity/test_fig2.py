"""Figure 2: Jacobians against the theory's table, a second implementation and closed forms; how it is judged."""

import pytest
import torch
import torch.nn.functional as F

from skiplens.jacobians.spectrum import jacobian_spectrum
from skiplens.papers.macdonald2023_regularity import fig2
from skiplens.papers.macdonald2023_regularity.digits import (
    DEVIATION,
    MEAN,
    NETWORKS,
    Digits,
    after_stem,
    batch_of,
    batch_spectrum,
    descent,
    image_spectrum,
    network_of,
    parameter_spectrum,
    with_frozen_norms,
)
from skiplens.papers.macdonald2023_regularity.fig2 import summary
from tests.papers.macdonald2023_regularity.readings import judged, made
from tests.tolerances import assert_close
from tests.zoo.test_mnist_conv import REFERENCE, reference_images, reference_network


@pytest.mark.parametrize("name", NETWORKS)
def test_the_composite_jacobian_is_that_of_the_table(name):
    network = reference_network(name)
    values = batch_spectrum(after_stem(network), network.stem(reference_images()).detach())
    expected = REFERENCE[name]
    assert_close(values[[0, 39, 69, 79]], torch.tensor(expected[1:5]), relative=1e-9)
    assert float(values.norm()) == pytest.approx(expected[5], rel=1e-9)
    assert summary(values)["count"] == 80


def test_blocks_with_frozen_norms_are_those_of_the_lens():
    network, images = reference_network("mnist_residual"), reference_images()[:2]
    stem = network.stem(images).detach()
    found = image_spectrum(network.block1, stem, images=2)
    lens = jacobian_spectrum(network, images, blocks=["block1"], coupling="sample", method="exact", network=False)
    assert_close(found, lens.singular_values["block1"], relative=1e-10)


def test_frozen_norms_do_what_the_norms_did_and_no_longer_look_at_the_batch():
    network, images = reference_network("mnist_residual"), reference_images()
    stem = network.stem(images).detach()
    frozen = with_frozen_norms(network.block1, stem)
    assert_close(frozen(stem), network.block1(stem), relative=1e-12)
    assert_close(frozen(stem[:3]), network.block1(stem)[:3], relative=1e-12)
    assert network.block1.branch[0].running_mean is None, "the network itself is as before"


def test_the_derivative_in_the_parameters_of_a_linear_layer():
    """DF of x ↦ W x + b is [X, 1] once for each output."""
    inputs = torch.randn(4, 3)
    expected = torch.linalg.svdvals(torch.cat([inputs, torch.ones(4, 1)], dim=1)).repeat_interleave(2)
    assert_close(parameter_spectrum(torch.nn.Linear(3, 2), inputs), expected)


def test_without_the_last_norm_one_layer_is_missing():
    network = reference_network("mnist_residual")
    assert len(after_stem(network, final_norm=False)) == len(after_stem(network)) - 1


def test_descent_is_plain_gradient_descent(seed):
    settings = Digits(images=4, seed=seed)
    batch = batch_of(settings, 0)
    ours, theirs = (network_of(settings, 0, "mnist_residual") for _ in range(2))
    losses = list(descent(ours, batch, 0.1, 3))
    optimiser = torch.optim.SGD(theirs.parameters(), lr=0.1)
    for loss in losses:
        expected = F.cross_entropy(theirs(batch[0]), batch[1])
        assert loss == pytest.approx(expected.item(), rel=1e-4)  # float32, and the roundings grow with each step
        optimiser.zero_grad()
        expected.backward()
        optimiser.step()


def test_networks_of_a_trial_share_images_and_weights(seed):
    settings = Digits(images=5, seed=seed)
    chain, pooled = (network_of(settings, 3, name) for name in (NETWORKS[0], NETWORKS[2]))
    assert torch.equal(chain.head[3].weight, pooled.head[3].weight)
    assert not torch.equal(chain.head[3].weight, network_of(settings, 4, NETWORKS[0]).head[3].weight)
    images, labels = batch_of(settings, 3)
    assert images.dtype == torch.float32 and float(images.min()) == 0 and len(labels) == 5
    assert torch.equal(images, batch_of(settings, 3)[0])
    standardised, _ = batch_of(Digits(images=5, standardised=True, seed=seed), 3)
    assert_close(standardised * DEVIATION + MEAN, images)


def test_jacobians_are_taken_before_their_update(seed):
    """The losses of a run do not depend on looking; moments after each other continue one descent."""
    both = fig2.digit_composites(fig2.Composites(images=4, moments=(0, 2), seed=seed))["values"]
    last = fig2.digit_composites(fig2.Composites(images=4, moments=(2,), seed=seed))["values"]
    assert both.shape == (3, 2, 40)
    assert torch.equal(both[:, 1], last[:, 0])
    assert fig2.digit_losses(fig2.Losses(images=4, trials=2, iterations=3, seed=seed))["loss"].shape == (2, 4, 3)


def spread(numbers: list[float], trials: int = 12) -> list[torch.Tensor]:
    """These numbers, a little different in each trial."""
    return [torch.tensor(numbers) + 1e-3 * trial for trial in range(trials)]


def test_the_start_is_corrected_only_if_the_order_turns_round():
    def readings(with_norm: list[float], without: list[float]):
        return [
            made("digit_starts", {"values": values[:, None] + 1e-4 * torch.randn(2, 1)}, final_norm=final_norm)
            for final_norm, numbers in ((True, with_norm), (False, without))
            for values in spread(numbers)
        ]

    assert judged(fig2, "composite_at_start", readings([2.0, 1.0], [1.0, 2.0])).verdict == "corrected"
    assert judged(fig2, "composite_at_start", readings([1.0, 2.0], [1.0, 2.0])).verdict == "reproduced"
    assert judged(fig2, "composite_at_start", readings([2.0, 1.0], [2.0, 1.0])).verdict == "differs"


def test_losses_are_compared_within_trials():
    """All losses of a trial move together by far more than networks differ."""
    offsets = torch.randn(6, 5, 1, 1)
    networks = torch.tensor([1.0, 0.9, 0.95, 1.0])[:, None].expand(4, 20)
    readings = [made("digit_losses", {"loss": networks + offset + 1e-3 * torch.randn(5, 4, 20)}) for offset in offsets]
    found = judged(fig2, "loss_residual", readings)
    assert (found.verdict, found.ours) == ("reproduced", pytest.approx(-0.1, abs=1e-3))
    assert "30 of 30" in found.explanation
    assert judged(fig2, "loss_average_pool", readings).verdict == "opposite"


def test_the_pool_as_it_was_run_has_zeros():
    found = judged(fig2, "pool", [])
    assert (found.verdict, found.ours) == ("corrected", pytest.approx(1.0))
    assert "240 of 320 are 0" in found.explanation


def test_statistics_of_a_known_spectrum():
    found = summary(torch.tensor([10.0, 1.0, 0.1, 0.0]))
    assert found["median"] == pytest.approx(0.55)
    assert found["mean_log10"] == pytest.approx((1 + 0 - 1 - 6) / 4)
    assert (found["above_1"], found["zero"], found["at_1"]) == (0.25, 0.25, 0.25)
