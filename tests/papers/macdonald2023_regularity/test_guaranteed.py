"""Guaranteed runs: the table, the certificate at each step, from any start; and what the proof does not cover."""

import pytest
import torch

from tests.jacobians.systems.reference import LABELS_A, cosines, data_a, network_r, start_a
from tests.tolerances import assert_close


@pytest.fixture
def network():
    from skiplens.papers.macdonald2023_regularity.guaranteed import GuaranteedNetwork

    return GuaranteedNetwork((6, 5, 4, 3), hidden=4, margin=0.5)


def targets(cost):
    return LABELS_A if cost == "cross-entropy" else cosines(3, 4).T


PLACES = [0, 1, 10, 100, 1000]
LENGTHS = pytest.mark.parametrize("steps", [100, pytest.param(1000, marks=pytest.mark.slow)])


def reached(steps):
    """The columns of the tables up to so many steps."""
    return [place for place in PLACES if place <= steps]


REPAIRED = {
    "cross-entropy": (
        20.454384454843954,
        [0.6861817174911, 0.6755898432866, 0.5863344427561, 0.1837178428341, 0.0178196263322],
    ),
    "square": (50.0553310067958, [6.636807142879, 6.396365527805, 4.652636216625, 0.5593685137919, 8.749453608565e-06]),
}
"""Smoothness and losses of REF-R."""


@LENGTHS
@pytest.mark.parametrize("cost", REPAIRED)
def test_descent_on_the_repaired_network_follows_the_table(network, cost, steps):
    from skiplens.papers.macdonald2023_regularity.common import descend
    from skiplens.papers.macdonald2023_regularity.guaranteed import guaranteed_loss

    smoothness, losses = REPAIRED[cost]
    loss = guaranteed_loss(network, (data_a().T, targets(cost)))
    run = torch.tensor([point.loss for point in descend(loss, start_a(), 1 / smoothness, steps)])
    places = reached(steps)
    assert_close(run[places], torch.tensor(losses[: len(places)]), relative=1e-10)
    assert bool((run.diff() < 0).all())


def test_the_network_is_the_reference_network(network, generator):
    theta = torch.randn(94, generator=generator)
    assert_close(network.system()(theta, data_a()), network_r()(theta, data_a()))
    first = torch.tensor([-0.0852031717350, -3.5452332095012, -0.4073432698890, 1.8501372346392])
    assert_close(network.system()(start_a(), data_a())[0], first, relative=1e-12)


def test_the_network_is_that_of_the_zoo(network):
    from skiplens import zoo

    module = zoo.build("guaranteed_resnet", widths=(6, 5, 4, 3), hidden=4).double()
    theta = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
    assert_close(network.system()(theta, data_a()), module(data_a().T).detach().T)


@pytest.mark.parametrize("scale", [0.1, 1.5, 15.0])
@pytest.mark.parametrize("cost", ["cross-entropy", "square"])
def test_certificates_hold_at_each_step_from_any_start(network, cost, scale):
    from skiplens.papers.macdonald2023_regularity.guaranteed import TrainingPlan, train_with_guarantee

    plan = TrainingPlan(steps=60, regularity_every=20)
    run = train_with_guarantee(network, (data_a().T, targets(cost)), start_a(scale), plan)
    assert run.holds
    assert run.losses.shape == run.bounds.shape == run.promised.shape == (61,)
    assert bool((run.losses.diff() < 0).all())
    assert bool((run.losses[1:] <= run.promised[:-1]).all())
    assert bool((run.losses <= run.bounds * (1 + 1e-12)).all())
    assert bool((run.steps.diff() >= 0).all())  # a lower loss allows a longer step
    assert set(run.regularity) == {0, 20, 40, 60}
    assert min(run.regularity.values()) >= run.guarantee.regularity == pytest.approx(0.0681121531138273, rel=1e-12)


@LENGTHS
def test_regularity_along_the_run_follows_the_table(network, steps):
    from skiplens.linalg.singular_values import smallest_gram_eigenvalue
    from skiplens.papers.macdonald2023_regularity.common import descend
    from skiplens.papers.macdonald2023_regularity.guaranteed import guaranteed_loss

    loss = guaranteed_loss(network, (data_a().T, LABELS_A))
    points = list(descend(loss, start_a(), 1 / 20.454384454843954, steps))
    found = [
        smallest_gram_eigenvalue(loss.system.parameter_derivative(points[t].parameters, data_a()))
        for t in reached(steps)
    ]
    expected = [1.039454292380, 1.039635352323, 1.041236386821, 1.055959835073, 1.088133197528]
    assert_close(torch.tensor(found), torch.tensor(expected[: len(found)]), relative=1e-11)


@pytest.mark.slow
def test_long_runs_reach_what_was_proved(network):
    from skiplens.papers.macdonald2023_regularity.common import descend
    from skiplens.papers.macdonald2023_regularity.guaranteed import TrainingPlan, guaranteed_loss, train_with_guarantee

    loss = guaranteed_loss(network, (data_a().T, LABELS_A))
    for scale, end in {1.5: 0.00219695, 0.1: 0.00230775, 15: 0.00157175}.items():
        *_, last = descend(loss, start_a(scale), 1 / 20.454384454843954, 8000)
        assert last.loss == pytest.approx(end, abs=1e-8)
    square = train_with_guarantee(network, (data_a().T, targets("square")), start_a(), TrainingPlan(4000))
    assert square.holds and float(square.losses[-1]) < 1e-20


def test_a_broken_promise_would_be_noticed(network):
    from dataclasses import replace

    from skiplens.papers.macdonald2023_regularity.guaranteed import TrainingPlan, train_with_guarantee

    run = train_with_guarantee(network, (data_a().T, LABELS_A), start_a(), TrainingPlan(5, 1))
    assert run.holds
    assert not replace(run, promised=run.promised * 0.9).holds
    assert not replace(run, bounds=run.bounds * 0.5).holds
    assert not replace(run, regularity={0: 1e-3}).holds


def test_steps_until_a_loss_are_those_of_the_bound():
    from skiplens.jacobians.systems.costs import CrossEntropy, SquareCost
    from skiplens.papers.macdonald2023_regularity.guaranteed import Guarantee

    for cost in (SquareCost(cosines(3, 4)), CrossEntropy(LABELS_A, 3)):
        guarantee = Guarantee(cost, 2.0, 0.5, 0.1)
        steps = guarantee.steps_until(0.01)
        assert guarantee.bound(steps) <= 0.01 < guarantee.bound(steps - 1)
        assert guarantee.steps_until(3.0) == 0
        assert guarantee.bound(0) == pytest.approx(2.0)
    assert Guarantee(CrossEntropy(LABELS_A, 3), 0.0, 0.5, 0.1).bound(7) == 0


def test_float32_runs(network):
    from skiplens.papers.macdonald2023_regularity.guaranteed import TrainingPlan, train_with_guarantee

    run = train_with_guarantee(network, (data_a().T.float(), LABELS_A), start_a().float(), TrainingPlan(20))
    assert run.holds
    assert run.parameters.dtype == torch.float32


def test_what_the_proof_does_not_cover_is_refused(network):
    from skiplens.base.errors import InvalidInputError
    from skiplens.jacobians.systems.costs import Logistic
    from skiplens.papers.macdonald2023_regularity.guaranteed import Guarantee, GuaranteedNetwork, guaranteed_loss

    X = data_a().T
    with pytest.raises(InvalidInputError, match="7 samples of 6 features"):
        guaranteed_loss(network, (torch.ones(7, 6), torch.zeros(7, dtype=torch.int64)))
    with pytest.raises(InvalidInputError, match="linearly dependent"):
        guaranteed_loss(network, (torch.cat([X[:3], X[:1] + X[1:2]]), LABELS_A))
    with pytest.raises(InvalidInputError, match="Flatten images"):
        guaranteed_loss(network, (torch.ones(4, 1, 6), LABELS_A))
    with pytest.raises(InvalidInputError, match="labels are integers"):
        guaranteed_loss(network, (X, torch.ones(4)))
    with pytest.raises(InvalidInputError, match="layers that never grow"):
        GuaranteedNetwork((6, 3, 4))
    with pytest.raises(InvalidInputError, match="a margin between 0 and 1"):
        GuaranteedNetwork((6, 3), margin=1.0)
    with pytest.raises(InvalidInputError, match="Nothing is proved for the logistic cost"):
        Guarantee(Logistic(torch.ones(2)), 1.0, 1.0, 1.0)
    with pytest.raises(InvalidInputError, match="approached, never reached"):
        Guarantee(guaranteed_loss(network, (X, LABELS_A)).cost, 1.0, 1.0, 1.0).steps_until(0.0)


def test_random_starts_come_from_the_generator(network, seed):
    first, again = (network.random_start(torch.Generator().manual_seed(seed)) for _ in range(2))
    assert torch.equal(first, again)
    assert first.shape == (94,)
