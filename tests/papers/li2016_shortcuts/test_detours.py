import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skiplens.papers.li2016_shortcuts.small_weights import length_bound, separation, sphere_path
from tests.papers.li2016_shortcuts.points import centre_hit, random_points
from tests.tolerances import assert_close

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


@settings(max_examples=60, deadline=None)
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
