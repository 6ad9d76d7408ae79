import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.graph.dissect import dissect
from skiplens.paths.forward import BlockDerivatives, PathOrders, TotalDerivative, expand_signal
from skiplens.paths.plan import all_bytes, frozen_plan, highest_orders, peak_bytes
from skiplens.paths.step import padded, summed
from tests.networks import Formula, drawn, mlp, noise
from tests.paths.frozen_by_hand import Perceptrons, polynomial
from tests.tolerances import assert_close


def planned(depth=5):
    network = dissect(drawn(Perceptrons(depth, hidden=8)), noise(3, 3))
    return frozen_plan(network, network.node(network.output))


def test_factors_of_branches_are_those_of_the_polynomial():
    plan = planned()
    stack = expand_signal(plan, PathOrders())
    frozen = expand_signal(plan, BlockDerivatives((0.3,) * 5, derivatives=False))
    assert frozen.shape[0] == 1
    assert_close(frozen[0], polynomial(stack, 0.3))
    signed = expand_signal(plan, PathOrders(factors=(-1.0,) * 5))
    assert_close(signed, torch.stack([(-1) ** r * c for r, c in enumerate(stack)]))


def test_derivatives_by_the_factors_are_differences_of_frozen_networks():
    """The signal is linear in each factor, so that its derivative is what silencing the block takes away."""
    plan = planned()
    derivatives = expand_signal(plan, BlockDerivatives((1.0,) * 5))
    for block in range(5):
        silenced = tuple(float(other != block) for other in range(5))
        without = expand_signal(plan, BlockDerivatives(silenced, derivatives=False))[0]
        assert_close(derivatives[block + 1], derivatives[0] - without)
    total = expand_signal(plan, TotalDerivative())
    assert_close(total[1], derivatives[1:].sum(0))


@pytest.mark.parametrize(("left", "right", "moved"), [(1, 1, 0), (4, 2, 0), (2, 4, 0), (1, 1, 1), (5, 2, 1), (1, 3, 1)])
def test_sum_of_two_stacks(left, right, moved):
    a, b = noise(left, 3), noise(right, 3, seed=1)
    long = left + right + moved
    expected = padded(a, long) + padded(torch.cat([torch.zeros(moved, 3), b]), long)
    assert_close(summed(a, b, moved), expected[: max(left, right + moved)])


COUNTINGS = {
    "orders": PathOrders(),
    "no order": PathOrders(most=0),
    "few orders": PathOrders(most=2),
    "signed orders": PathOrders(factors=(1.0, -1.0, 0.5)),
    "derivatives": BlockDerivatives(),
    "scaled derivatives": BlockDerivatives(factors=(1.0, 2.0, 0.5)),
    "signal": BlockDerivatives(factors=(1.0, 2.0, 0.5), derivatives=False),
    "total derivative": TotalDerivative(),
}


@pytest.mark.parametrize(("left", "right"), [(1, 1), (1, 2), (2, 1), (2, 2)])
@pytest.mark.parametrize("counting", COUNTINGS.values(), ids=COUNTINGS)
def test_a_join_is_the_shortcut_plus_what_the_branch_brings(counting, left, right):
    shortcut, branch = noise(left, 3), noise(right, 3, seed=1)
    brought = counting.enter(branch, 1)
    length = max(left, len(brought))
    assert_close(counting.join(shortcut, branch, 1), padded(shortcut, length) + padded(brought, length))


def test_memory_grows_with_the_orders_that_are_kept():
    plan = planned()
    assert max(highest_orders(plan).values()) == 5
    assert 0 < peak_bytes(plan, most=0) < peak_bytes(plan, most=2) < peak_bytes(plan)
    assert all_bytes(plan) > 0


def test_paths_pass_a_branch_that_is_a_fourier_transform():
    """y = W(x + Re F x): the paths through no branch and through one are W x and W Re F x."""
    model = Formula(lambda m, x: m.f(x + torch.fft.fft2(x).real), f=nn.Linear(4, 4, bias=False))
    x = noise(2, 5, 4)
    network = dissect(model, x)
    stack = expand_signal(frozen_plan(network, network.node(network.output)), PathOrders())
    assert_close(stack, torch.stack([model.f(x), model.f(torch.fft.fft2(x).real)]))


@pytest.mark.parametrize("of", ["signal", "jacobian"])
def test_a_slice_written_in_place_is_the_sum_that_it_writes(of):
    def in_a_slice(m, x):
        for part in m.parts:
            found, x = part(x), x.clone()
            x[:, 2:] += found[:, 2:]  # torch writes 2⁶³ − 1 for the end
        return x

    def masked(m, x):
        for part in m.parts:
            x = x + part(x) * torch.tensor([0.0, 0, 1, 1, 1])
        return x

    parts = nn.ModuleList(mlp(5) for _ in range(3))
    models = [drawn(Formula(formula, parts=parts)) for formula in (in_a_slice, masked)]
    sliced, whole = (sl.path_spectrum(model, noise(4, 5), of=of) for model in models)
    assert len(sliced.energy) == 4
    assert_close(sliced.energy, whole.energy)
