import math

import pytest
import torch

from skiplens.base.errors import InvalidInputError, TooLargeError
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import Mixture
from skiplens.papers.littwin2016_ensembles.spin_glass.expected_counts import (
    expected_critical_points,
    log_expected_critical_points,
    log_expected_total,
)
from tests.tolerances import STANDARD_ERRORS, assert_close

TABLE = [  # spins, B, E total, E minima, as printed in the theory note
    (4, 0.5, 4.079338181617, 1.373387935998),
    (4, 2.0, 18.790233801030, 3.579524461508),
    (4, 3.0, 32.508214346531, 5.481302275568),
    (4, 5.0, 66.75, 10.054250419289),
    (5, 2.0, 31.496914209437, 3.999812016115),
    (5, 5.0, 173.198954527328, 14.695381923565),
    (6, 0.5, 4.129144054765, 1.288031203601),
    (6, 2.0, 50.873136517251, 4.411781064997),
    (6, 5.0, 435.01171875, 20.884934403746),
    (8, 2.0, 124.091986047271, 5.235448516868),
    (8, 3.0, 464.811126016599, 11.678024384094),
    (10, 0.5, 3.602273064438, 1.202129945717),
    (10, 2.0, 286.915879550049, 6.080387185001),
    (10, 3.0, 1595.704737746311, 15.974355654645),
    (10, 5.0, 14747.881625175, 72.565298732342),
]
LOG_TABLE = [  # spins, B, log E total, log E minima
    (20, 2.0, 9.535479059635, 2.39916554955),
    (20, 4.0, 15.937352087150, 5.58202521843),
    (20, 9.0, 23.562026751174, 10.95186344367),
    (40, 2.0, 16.841906365475, 3.29086045739),
    (40, 4.0, 30.164538556985, 8.92769779982),
    (40, 9.0, 45.895467842322, 19.20436600541),
]
RATIOS = torch.tensor([1e-3, 0.1, 0.5, 1.0, 2.0, 7.0, 200.0], dtype=torch.float64)


@pytest.mark.parametrize(("spins", "ratio", "total", "minima"), TABLE)
def test_printed_counts(spins, ratio, total, minima):
    counts = expected_critical_points(spins, ratio)
    assert counts.sum().item() == pytest.approx(total, rel=1e-12)
    assert counts[0].item() == pytest.approx(minima, rel=1e-12)
    assert log_expected_total(spins, ratio).exp().item() == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize(("spins", "ratio", "total", "minima"), LOG_TABLE)
def test_printed_logs_of_counts(spins, ratio, total, minima):
    logs = log_expected_critical_points(spins, ratio)
    assert torch.logsumexp(logs, 0).item() == pytest.approx(total, abs=1e-12 * 10)
    assert logs[0].item() == pytest.approx(minima, abs=1e-10)  # the note's Pfaffian was good to 1e-11 up to 40 spins
    assert log_expected_total(spins, ratio).item() == pytest.approx(total, abs=1e-12 * 10)


def test_two_and_three_spins_in_closed_form():
    B = RATIOS
    two, three = expected_critical_points(2, B), expected_critical_points(3, B)
    root, extra = torch.sqrt(1 + 3 * B), B**1.5 / torch.sqrt(1 + 3 * B)
    assert_close(two, torch.stack([root, root], 1))
    assert_close(three, torch.stack([1 + 2 * extra, 4 * extra, 1 + 2 * extra], 1))


def test_one_spin_has_two_points():
    assert_close(expected_critical_points(1, RATIOS), torch.full((7, 1), 2.0))
    assert_close(log_expected_total(1, RATIOS).exp(), torch.full((7,), 2.0))


@pytest.mark.parametrize("spins", [1, 2, 3, 6, 11])
def test_pure_two_spin_has_two_points_of_each_index(spins):
    assert_close(expected_critical_points(spins, 1.0), torch.full((spins,), 2.0))


@pytest.mark.parametrize("spins", [4, 5, 12, 17, 30])
def test_all_indices_add_up_to_the_density_and_to_the_euler_characteristic(spins):
    logs = log_expected_critical_points(spins, RATIOS)
    total = torch.logsumexp(logs, 1)
    assert ((total - log_expected_total(spins, RATIOS)).abs() < 1e-11).all()
    signs = 1 - 2 * (torch.arange(spins) % 2)
    euler = (logs - total[:, None]).exp() @ signs.double()
    expected = 2.0 * (spins % 2) / total.exp()
    assert ((euler - expected).abs() < 1e-11).all()


@pytest.mark.parametrize(("spins", "ratio"), [(5, 0.3), (6, 2.0), (9, 1.7)])
def test_every_index_equals_a_monte_carlo_mean_over_ordered_eigenvalues(spins, ratio, generator):
    samples = 40_000
    A = torch.randn(samples, spins, spins, generator=generator)
    eigenvalues = torch.linalg.eigvalsh((A + A.mT) / math.sqrt(2))  # off-diagonal variance 1, diagonal 2
    values = torch.exp(-(ratio - 1) / (4 * (ratio + 1)) * eigenvalues.square())
    constant = 2 * math.sqrt(2) * ratio ** (spins / 2) / math.sqrt(1 + ratio)
    error = constant * values.std(0) / math.sqrt(samples)
    deviation = (constant * values.mean(0) - expected_critical_points(spins, ratio)).abs()
    assert (deviation < STANDARD_ERRORS * error).all()


def test_without_curvature_one_minimum_and_one_maximum_remain():
    counts = expected_critical_points(8, 1e-4)
    assert counts[[0, -1]].tolist() == pytest.approx([1, 1], abs=1e-6)
    assert counts[1:-1].max() < 1e-6


def test_printed_counts_of_networks_with_ten_layers():
    ratios = [0.05, 0.1, 0.5, 1.0, 2.0, 10.0]
    for shortest, printed in [
        (2, [2.136855981, 2.566879734, 18.76778081, 60.14963015, 152.3896384, 457.6563982]),
        (1, [1.062771991, 1.636588986, 18.72289764, 60.14891354, 152.3896375, 457.6563982]),
    ]:
        B = [Mixture.of_network(10, ratio, shortest).curvature_ratio for ratio in ratios]
        minima = expected_critical_points(10, torch.tensor(B))[:, 0]
        assert minima.tolist() == pytest.approx(printed, rel=1e-9)
    assert expected_critical_points(10, 9.0)[0].item() == pytest.approx(570.4159743, rel=1e-9)


def test_leading_form_of_the_total():
    from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import finite_size_log_total

    ratio = (log_expected_total(80, 2.0) - finite_size_log_total(80, 2.0)).exp().item()
    assert ratio == pytest.approx(0.987, abs=5e-4)
    deviations = [1 - (log_expected_total(n, 2.0) - finite_size_log_total(n, 2.0)).exp().item() for n in (500, 1000)]
    assert deviations[1] == pytest.approx(deviations[0] / 2, rel=0.01)  # the correction is of order 1/spins


@pytest.mark.slow
def test_slow_convergence_to_the_complexity():
    logs = log_expected_critical_points(160, 2.0)
    assert logs[0].item() / 160 == pytest.approx(0.04355, abs=5e-6)
    assert torch.logsumexp(logs, 0).item() == pytest.approx(log_expected_total(160, 2.0).item(), abs=1e-10)


def test_bad_input():
    with pytest.raises(InvalidInputError, match="curvature ratio B = v''/v' must be positive and finite; got 0 to 1"):
        expected_critical_points(3, torch.tensor([0.0, 1.0]))
    with pytest.raises(InvalidInputError, match=r"dimension \(number of spins\) must be at least 1; got 0"):
        log_expected_total(0, 1.0)
    with pytest.raises(
        TooLargeError, match=r"computed up to 200 spins; got 201\. Use log_expected_total or complexity"
    ):
        expected_critical_points(201, 1.0)
    with pytest.raises(TooLargeError, match=r"computed up to 20000 spins; got 20001\. Use total_complexity"):
        log_expected_total(20_001, 1.0)
