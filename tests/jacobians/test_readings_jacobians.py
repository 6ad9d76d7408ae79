import math

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.linalg.density import weighted_quantiles
from tests.sample_readings import jacobians
from tests.tolerances import assert_close


def test_statistics_by_hand():
    numbers = jacobians(network=torch.tensor([4.0, 2.0, 1.0, 0.0])).statistics("network")
    assert (numbers.count, numbers.largest, numbers.smallest) == (4, 4.0, 0.0)
    assert numbers.median == 1.0 and numbers.above_one == 0.5 and numbers.near_zero == 0.25 and numbers.at_one == 0.25
    assert numbers.rms == pytest.approx(math.sqrt(21 / 4))
    assert numbers.mean_log10 == pytest.approx((math.log10(4) + math.log10(2) + 0 - 6) / 4)
    assert numbers.log_volume == pytest.approx(math.log(8) - 6 * math.log(10))
    assert math.isinf(numbers.condition_number)
    assert jacobians(network=torch.tensor([4.0, 2.0])).statistics().condition_number == 2


def test_weights_count():
    """Two nodes of a density with shares of 0.9 and 0.1, as of nine values and one."""
    weighted = jacobians(network=torch.tensor([3.0, 0.5]), shares=torch.tensor([0.9, 0.1])).statistics()
    listed = jacobians(network=torch.tensor([3.0] * 9 + [0.5])).statistics()
    for name in ("median", "rms", "mean_log10", "above_one"):
        assert getattr(weighted, name) == pytest.approx(getattr(listed, name))


def test_a_node_without_weight_is_not_the_smallest():
    assert jacobians(network=torch.tensor([3.0, 0.0]), shares=torch.tensor([1.0, 0.0])).statistics().smallest == 3.0


def test_share_below_counts_weights():
    reading = jacobians(network=torch.tensor([3.0, 0.5]), shares=torch.tensor([0.9, 0.1]))
    assert reading.share_below(1.0) == pytest.approx(0.1) and reading.share_below(4.0) == pytest.approx(1.0)
    assert reading.share_below(0.2, "b", without_shortcut=True) == pytest.approx(0.5)


def test_quantiles_are_those_of_the_sorted_list():
    values = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0])
    found = weighted_quantiles(values, torch.full((5,), 0.2), torch.tensor([0.0, 0.2, 0.5, 0.8, 1.0]))
    assert found.tolist() == [1.0, 1.0, 3.0, 4.0, 5.0]


def test_histogram_counts_shares_and_its_upper_edge():
    reading = jacobians(network=torch.tensor([3.0, 2.0, 1.0, 0.0]))
    assert_close(reading.histogram("network", torch.tensor([0.0, 1.0, 2.0, 3.0])), torch.tensor([0.25, 0.25, 0.5]))
    assert_close(reading.histogram("network", torch.tensor([0.5, 1.5])), torch.tensor([0.25]))


def test_what_was_not_measured_is_named():
    reading = jacobians()
    with pytest.raises(InvalidInputError, match=r"'networks' was not measured. Did you mean network"):
        reading.statistics("networks")
    with pytest.raises(InvalidInputError, match="branch of 'network' was not measured"):
        reading.statistics("network", without_shortcut=True)
    assert reading.method("network") == "exact" and reading.blocks == ("a", "b")
