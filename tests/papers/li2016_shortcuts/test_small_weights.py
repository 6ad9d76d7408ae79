"""Theorem 1's construction: separated points, paths around each other, and the network."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skiplens import zoo
from skiplens.base.errors import DidNotConverge, InvalidInputError
from skiplens.papers.li2016_shortcuts.small_weights import (
    SmallWeightNetwork,
    length_bound,
    norm_bound,
    separation,
    small_weight_network,
    sphere_path,
    surrogate_targets,
    units_bound,
)
from tests.papers.li2016_shortcuts.points import centre_hit, fibonacci, random_points
from tests.tolerances import assert_close

LENGTHS = [2.5237359712224, 3.1068861873428, 2.2709672202572, 1.0196561830858, 1.0380378685183, 2.4026672288127]
# step: units, largest norm, norm times root of units, units that eq. 19 allows
FIB = {
    0.1: (128, 0.9972071270935, 11.28211, 612),
    0.05: (251, 0.7060684223180, 11.18623, 1218),
    0.02: (621, 0.4488179814884, 11.18449, 3048),
    0.01: (1239, 0.3173642204204, 11.17104, 6090),
    0.005: (2475, 0.2244107427708, 11.16429, 12174),
}


@pytest.mark.parametrize("step", FIB)
def test_reference_table_of_the_spiral(step):
    built = small_weight_network(*fibonacci(), step=step, kind="printed")
    units, norm, product, allowed = FIB[step]
    network = built.network
    assert network.units == units
    assert_close(network.norms().max(), torch.tensor(norm))
    assert network.norms().max().item() * math.sqrt(units) == pytest.approx(product, abs=6e-6)
    assert_close(built.path_lengths, torch.tensor(LENGTHS))
    assert_close(torch.tensor(built.norm_constant), torch.tensor(11.160292504087))
    assert units_bound(6, built.separation, step) == allowed
    assert built.fit_error < 1e-10


def test_reference_of_the_centre_hit():
    built = small_weight_network(*centre_hit(), step=0.001, kind="printed")
    assert built.network.units == 3552
    assert built.network.norms().max().item() == pytest.approx(0.116854966218, rel=1e-11)
    assert built.network.norms().max().item() * math.sqrt(3552) == pytest.approx(6.964399, abs=6e-7)
    assert_close(built.path_lengths, torch.tensor([1.980702910826535, math.pi / 2]))
    assert built.fit_error < 1e-13


@pytest.mark.parametrize("kind", ["printed", "saturated"])
def test_network_of_the_zoo_with_these_weights_fits(kind):
    x, y = fibonacci()
    built = small_weight_network(x, y, step=0.1, kind=kind)
    network = zoo.build("shortcut_network", units=built.network.units, width=3, bias=True)
    W_1, b, W_2 = built.network.matrices()
    for unit, first, bias, second in zip(network, W_1, b, W_2, strict=True):
        for parameter, value in zip(unit.branch.parameters(), (first, bias, second), strict=True):
            parameter.data.copy_(value)
    assert (network(x).detach() - y).norm(dim=1).max() < 1e-10
    norms = torch.stack([torch.linalg.matrix_norm(W) for W in (W_1, W_2)])
    assert_close(norms, built.network.norms().expand(2, -1))


def test_part_of_the_matrices():
    network = small_weight_network(*fibonacci(), step=0.5).network
    whole, part = network.matrices(), network.matrices(3, 5)
    assert all(torch.equal(a[3:5], b) for a, b in zip(whole, part, strict=True))


@pytest.mark.parametrize("width", [3, 8])
def test_random_separated_data_are_fitted_with_norms_that_fall_like_the_root_of_depth(width, generator):
    x, y = random_points(8, width, generator), random_points(8, width, generator)
    products = []
    for units in (400, 1600):
        built = small_weight_network(x, y, units=units)
        assert built.network.units == units and built.fit_error < 1e-12
        products.append(built.network.norms().max().item() * math.sqrt(units))
    # Twice the printed units' norms; a path's share of the units is rounded, which costs m of them at most.
    assert products[0] == pytest.approx(products[1], rel=0.05)
    assert products[1] == pytest.approx(built.norm_constant, rel=0.02)
    assert built.network.norms().max().item() / 2 <= norm_bound(1600, 8, built.separation) * (1 + 8 / 1600)


def test_units_are_shared_so_that_the_longest_step_is_shortest(generator):
    x, y = random_points(3, 3, generator), random_points(3, 3, generator)
    built = small_weight_network(x, y, units=11, verify=False)
    lengths = built.path_lengths.tolist()
    splits = [(a, b, 11 - a - b) for a in range(1, 10) for b in range(1, 11 - a)]
    best = min(max(length / n for length, n in zip(lengths, split, strict=True)) for split in splits)
    assert built.network.units == 11
    chords = built.network.moves.norm(dim=1)
    # The chord of an arc is shorter than the arc, on detours of small radius noticeably.
    assert chords.max().item() <= best * (1 + 1e-12)
    assert chords.max().item() >= 2 * math.sin(best / 2) * 0.9


def test_saturated_units_do_not_magnify_rounding():
    angle = 0.1  # two points 0.1 apart; one walks a quarter circle away from the other
    x = torch.tensor([[1.0, 0, 0], [math.cos(angle), 0, -math.sin(angle)]])
    y = torch.tensor([[0.0, 1, 0], [math.cos(angle), 0, -math.sin(angle)]])
    stable = small_weight_network(x, y, step=0.002)
    assert stable.separation == pytest.approx(2 * math.sin(angle / 2), rel=1e-9)
    assert stable.fit_error < 1e-13
    with pytest.raises(DidNotConverge, match=r"misses a target by .*: rounding grew.*Use kind='saturated'"):
        small_weight_network(x, y, step=0.002, kind="printed")
    assert small_weight_network(x, y, step=0.002, kind="printed", verify=False).fit_error > 0.01


@pytest.mark.parametrize(("rho", "measured", "predicted"), [(0.8, 359, 379), (0.4, 2.08e5, 2.13e5)])
def test_growth_of_rounding_in_printed_units(rho, measured, predicted):
    """Along the moving point about (8/ρ²) sinh(κ · length)/κ with κ = √(8/ρ² − 1), exponential in length over ρ."""
    length, kappa = math.pi / 2, math.sqrt(8 / rho**2 - 1)
    assert 8 / rho**2 / kappa * math.sinh(kappa * length) == pytest.approx(predicted, rel=5e-3)  # three digits printed
    t = torch.linspace(0, length, 2001)
    walk = torch.stack([t.cos(), t.sin(), torch.zeros_like(t)], dim=1)
    network = SmallWeightNetwork(walk[:-1], walk.diff(dim=0), rho**2 / 8, "printed")
    start, error = walk[:1], 1e-9
    grown = (network(start * (1 + error)) - network(start)).norm().item() / error
    assert grown == pytest.approx(measured, rel=0.06)  # the note's steps are not known; both are near the prediction


def test_a_single_sample():
    x, y = torch.tensor([[1.0, 0, 0]]), torch.tensor([[-1.0, 0, 0]])
    built = small_weight_network(x, y, step=0.1)
    assert built.fit_error < 1e-13 and built.path_lengths.item() == pytest.approx(math.pi)


def test_nothing_to_move():
    x = torch.eye(3)
    built = small_weight_network(x, x, units=0)
    assert built.network.units == 0 and built.fit_error == 0


def test_float32_points_are_walked_in_float64():
    x, y = fibonacci()
    built = small_weight_network(x.float(), y.float(), step=0.1)
    assert built.network.sources.dtype == torch.float64 and built.fit_error < 1e-12


def test_surrogate_targets_make_shared_labels_reachable(generator):
    x = random_points(20, 4, generator)
    y = torch.eye(4)[torch.arange(20) % 3]
    near = surrogate_targets(x, y, 0.2, generator)
    assert (near - y).norm(dim=1).max() <= 0.2 * (1 + 1e-12)
    assert_close(near.norm(dim=1), torch.ones(20))
    built = small_weight_network(x, near, units=400)
    loss = (built.network(x) - y).square().sum() / (2 * 20)
    assert built.fit_error < 1e-9 and loss <= 0.2**2 / 2


def test_surrogate_targets_follow_the_generator():
    x, y = fibonacci()
    draws = [surrogate_targets(x, y, 0.1, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])


@pytest.mark.parametrize(("call", "message"), [
    (lambda x, y: small_weight_network(x, y), "either the longest step or the number of units"),
    (lambda x, y: small_weight_network(x, y, step=0.1, units=5), "either the longest step or the number of units"),
    (lambda x, y: small_weight_network(x, y, step=-1.0), "positive length; got -1"),
    (lambda x, y: small_weight_network(x, y, units=5), "6 points have to move, so at least 6 units are needed; got 5"),
    (lambda x, y: small_weight_network(x, y, step=0.1).network(torch.zeros(2, 4)), r"takes \(samples, 3\)"),
    (lambda x, y: surrogate_targets(x, y, 1.5, torch.Generator()), "must lie between 0 and 1; got 1.5"),
])  # fmt: skip
def test_wrong_arguments(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call(*fibonacci())


@pytest.mark.parametrize(("points", "rho"), [(fibonacci, 0.891072250243255), (centre_hit, 0.765366864730180)])
def test_separation_of_the_reference_cases(points, rho):
    assert_close(torch.tensor(separation(*points()).distance), torch.tensor(rho))


def test_separation_by_two_loops(generator, monkeypatch):
    x, y = random_points(9, 4, generator), random_points(9, 4, generator)
    named = [*((f"input {i}", i, p) for i, p in enumerate(x)), *((f"target {i}", i, p) for i, p in enumerate(y))]
    pairs = [((p - q).norm().item(), a, b) for a, i, p in named for b, j, q in named if i != j]
    expected = min(pairs)
    monkeypatch.setattr("skiplens.papers.li2016_shortcuts.small_weights._ROWS_AT_ONCE", 40)  # several blocks
    found = separation(x, y)
    assert found.distance == pytest.approx(expected[0], rel=1e-12)
    assert {found.first, found.second} == set(expected[1:])


def test_a_sample_may_already_be_at_its_target(generator):
    x, y = random_points(4, 3, generator), random_points(4, 3, generator)
    y[2] = x[2]
    built = small_weight_network(x, y, step=0.1)
    assert built.path_lengths[2] == 0 and built.fit_error < 1e-12


def _points(change):
    x, y = fibonacci()
    change(x, y)
    return x, y


def _repeat_target(x, y):
    y[3] = y[1]


def _repeat_input(x, y):
    x[4] = x[0]


def _nan(x, y):
    x[0, 0] = math.nan


@pytest.mark.parametrize(("points", "message"), [
    (_points(_repeat_target), "target 1 and target 3 are 0 apart.*share a label.*surrogate_targets"),
    (_points(_repeat_input), "input 0 and input 4 are 0 apart.*Remove repeated inputs"),
    (_points(_nan), "inputs must be finite and of norm 1; the worst norm differs from 1 by nan"),
    ((2 * fibonacci()[0], fibonacci()[1]), "worst norm differs from 1 by 1.*Divide each row by its norm"),
    ((torch.eye(2), torch.eye(2).flip(0)), "have 2 dimensions; paths that avoid each other need at least 3"),
    ((fibonacci()[0][:5], fibonacci()[1]), r"same shape; got \(5, 3\) and \(6, 3\)"),
    ((torch.zeros(0, 3), torch.zeros(0, 3)), r"floating-point matrix \(samples, width\); got shape \(0, 3\)"),
])  # fmt: skip
def test_points_that_theorem_1_does_not_cover(points, message):
    with pytest.raises(InvalidInputError, match=message):
        small_weight_network(*points, step=0.1)


NOBODY = torch.zeros(0, 3, dtype=torch.float64)


def test_free_way_is_the_great_arc(generator):
    s, e = random_points(2, 3, generator)
    path = sphere_path(s, e, NOBODY, 0.1)
    assert path.length == pytest.approx(math.acos((s @ e).item()), rel=1e-12)
    points = path.walk(7)
    assert torch.equal(points[-1], e)
    steps = points.diff(dim=0).norm(dim=1)
    assert_close(steps, torch.full_like(steps, 2 * math.sin(path.length / 14)))


def test_detour_through_the_centre_has_the_length_by_hand():
    (s, other), (e, _) = centre_hit()
    rho = separation(*centre_hit()).distance
    phi = 2 * math.asin(rho / 4)
    expected = math.pi / 2 - 2 * phi + math.pi * math.sin(phi)
    assert expected == pytest.approx(1.980702910826535, rel=1e-14)
    path = sphere_path(s, e, other[None], phi)
    assert path.length == pytest.approx(expected, rel=1e-12)
    distances = (path.walk(1000) - other).norm(dim=1)
    assert distances.min().item() == pytest.approx(rho / 2, rel=1e-5)


@pytest.mark.parametrize("gap", [0.0, 1e-9, 1e-6])
def test_nearly_opposite_points(gap):
    s, e = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([-math.cos(gap), math.sin(gap), 0.0])
    path = sphere_path(s, e, NOBODY, 0.1)
    assert path.length == pytest.approx(math.pi - gap, rel=1e-12)
    points = path.walk(10)
    steps = points.diff(dim=0).norm(dim=1)
    assert_close(steps, torch.full_like(steps, 2 * math.sin((math.pi - gap) / 20)))


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), samples=st.integers(2, 12), width=st.integers(3, 6))
def test_ways_keep_their_distance_and_are_not_too_long(seed, samples, width):
    generator = torch.Generator().manual_seed(seed)
    x, y = random_points(samples, width, generator), random_points(samples, width, generator)
    rho = separation(x, y).distance
    path = sphere_path(x[0], y[0], x[1:], 2 * math.asin(rho / 4))
    assert path.length <= length_bound(samples, rho) * (1 + 1e-12)
    points = path.walk(400)
    assert_close(points.norm(dim=1), torch.ones(401))
    assert torch.cdist(points, x[1:]).min() >= rho / 2 * (1 - 1e-6)  # cdist of near points: half the digits
    step = path.length / 400
    assert points.diff(dim=0).norm(dim=1).max() <= step * (1 + 1e-9)  # connected, steps of equal arc length
