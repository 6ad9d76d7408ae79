"""The printed theorem 5.1 fails: trapped runs, the crossing bound, and the table of the theory."""

import math

import pytest
import torch

from tests.papers.macdonald2023_regularity import scalar_counterexample
from tests.tolerances import assert_close

SMOOTHNESS = {"logistic": 18.7377739919381, "square": 86.0601290625283}
TRAPS = {"logistic": (0.180345014438980, 0.136831729172559), "square": (0.026138994658664, 0.0)}
LOSSES = {
    "logistic": [
        0.28002727776543, 0.27786977733563, 0.26317456965963, 0.22467062620197, 0.19640376473589, 0.19180140861762,
    ],
    "square": [
        0.25949568005522, 0.25539371831646, 0.22563211475613, 0.13450785623329, 0.06466364709134, 0.05371090884405,
    ],
}  # fmt: skip
PLACES = (0, 1, 10, 100, 1000, 2000)
CROSSING = {"logistic": 563, "square": 1214}
"""The step from which on the output is above 1.5, where the trap closes."""


@pytest.fixture(params=["logistic", "square"])
def cost(request):
    return request.param


def test_a_trapped_run_follows_the_table(cost):
    from skiplens.papers.macdonald2023_regularity.counterexample import run_counterexample

    run = run_counterexample(cost, steps=100)
    assert run.smoothness == pytest.approx(SMOOTHNESS[cost], rel=1e-12)
    assert_close(run.losses[[0, 1, 10, 100]], torch.tensor(LOSSES[cost][:4]), relative=1e-11)
    assert bool((run.losses.diff() < 0).all())
    assert (run.trap, run.infimum) == pytest.approx(TRAPS[cost], rel=1e-12)
    assert float(run.losses.min()) > run.trap > run.infimum
    assert float(run.outputs.max()) < 1.621356195541343
    assert float(run.outputs[0]) == pytest.approx(1.12958945030599, rel=1e-12)


def test_a_longer_trapped_run_in_plain_numbers_follows_the_table(cost):
    rows, _ = scalar_counterexample.run(cost, SMOOTHNESS[cost], (1.0, 0.2, 1.0), 2000)
    assert_close(torch.tensor([rows[t][0] for t in PLACES]), torch.tensor(LOSSES[cost]), relative=1e-11)
    above = [row[1] > 1.5 for row in rows]
    assert above.index(True) == CROSSING[cost] and all(above[CROSSING[cost] :])
    if cost == "logistic":
        _, weights = scalar_counterexample.run(cost, SMOOTHNESS[cost], (1.0, 0.2, 1.0), 1000)
        expected = torch.tensor([3.066593054563, 0.250865531697, 1.535023422571])
        assert_close(torch.tensor(weights), expected, relative=1e-11)


def test_every_layer_is_within_the_theorem():
    from skiplens.jacobians.systems.layer import DataBound
    from skiplens.papers.macdonald2023_regularity.counterexample import REACHABLE, TRAP, TWO_HUMPS, counterexample_loss

    t = torch.linspace(-10, 10, 100_001)
    slope = TWO_HUMPS.derivative(t)
    assert float(slope.abs().max()) <= TWO_HUMPS.slope == 1
    assert float(slope.diff().abs().max() / (t[1] - t[0])) <= TWO_HUMPS.curvature
    loss = counterexample_loss()
    total = loss.system.certificate(DataBound.of_data(loss.data))
    expected = [2.85375, 3.43644688413774, 15.7854821950631, 7.88726486622581, 2.7436]
    assert_close(
        torch.tensor([total.size, total.slope, total.curvature, total.mixed, total.bend]),
        torch.tensor(expected),
        relative=1e-12,
    )
    assert pytest.approx((1.621356195541343, 1.919807497632374), rel=1e-14) == (TRAP, REACHABLE)
    assert loss.system.layers[1].certificate(DataBound.of_radius(1.5, 1)).gain - 1 == pytest.approx(0.9025)


def test_the_run_agrees_with_plain_numbers(cost):
    from skiplens.papers.macdonald2023_regularity.counterexample import run_counterexample

    run = run_counterexample(cost, steps=50)
    rows, weights = scalar_counterexample.run(cost, SMOOTHNESS[cost], (1.0, 0.2, 1.0), 50)
    losses, outputs, regularity, _ = torch.tensor(rows).T
    assert_close(run.losses, losses, relative=1e-11)
    assert_close(run.outputs, outputs, relative=1e-11)
    assert_close(run.regularity, regularity, relative=1e-11)
    assert_close(run.parameters[-1], torch.tensor(weights), relative=1e-11)


def test_another_start_does_reach_the_minimum():
    rows, _ = scalar_counterexample.run("square", SMOOTHNESS["square"], (1.0, 3.0, -1.0), 40_000)
    assert rows[-1][0] < TRAPS["square"][0] / 100


def test_a_long_run_stays_trapped_while_regularity_is_summable():
    """10⁵ steps in the default tier; the million of the theory's table is the slow test below."""
    rows, _ = scalar_counterexample.run("logistic", SMOOTHNESS["logistic"], (1.0, 0.2, 1.0), 100_000)
    assert min(row[0] for row in rows) > TRAPS["logistic"][0]
    assert sum(row[2] for row in rows[:-1]) < 24.4


@pytest.mark.slow
def test_a_million_steps_stay_trapped():
    rows, _ = scalar_counterexample.run("logistic", SMOOTHNESS["logistic"], (1.0, 0.2, 1.0), 1_000_000)
    assert rows[-1][0] == pytest.approx(0.1808479, abs=1e-7)
    assert sum(row[2] for row in rows) == pytest.approx(24.127, abs=1e-3)
    assert sum(row[3] for row in rows) == pytest.approx(647, abs=1)
    rows, _ = scalar_counterexample.run("square", SMOOTHNESS["square"], (1.0, 0.2, 1.0), 1_000_000)
    assert rows[-1][0] == pytest.approx(0.0273995, abs=1e-7)
    rows, _ = scalar_counterexample.run("square", SMOOTHNESS["square"], (1.0, 3.0, -1.0), 1_000_000)
    assert rows[-1][0] < 1e-14


def test_an_unknown_cost_is_refused():
    from skiplens.base.errors import InvalidInputError
    from skiplens.papers.macdonald2023_regularity.counterexample import _cost

    with pytest.raises(InvalidInputError, match="Use 'logistic' or 'square'"):
        _cost("hinge")


def test_one_layer_follows_the_table():
    from skiplens.papers.macdonald2023_regularity.counterexample import run_printed_bound

    run = run_printed_bound(10_000)
    losses = [0.336785574404, 0.245004193991, 0.214745470964, 0.205543896453, 0.202709100627]
    weights = [0.77007248, 1.64371200, 3.13379620, 5.71666691, 10.25385438]
    places = [1, 10, 100, 1000, 10_000]
    assert_close(run.losses[places], torch.tensor(losses), relative=1e-11)
    assert_close(run.weights[places], torch.tensor(weights), relative=1e-8)
    assert run.floor == pytest.approx(0.201413277983, rel=1e-11)
    assert bool((run.losses <= run.valid).all())


def test_one_layer_is_the_general_descent():
    from skiplens.jacobians.systems.affine import Affine
    from skiplens.jacobians.systems.costs import Logistic
    from skiplens.jacobians.systems.layer import Composition
    from skiplens.jacobians.systems.parameterisation import EntryNormalised
    from skiplens.jacobians.systems.smoothness import TrainingLoss, certified_smoothness, descent_constant
    from skiplens.papers.macdonald2023_regularity.common import descend
    from skiplens.papers.macdonald2023_regularity.counterexample import run_printed_bound

    loss = TrainingLoss(Composition((Affine(EntryNormalised(1, 1)),)), torch.tensor([[1.5]]), Logistic(torch.ones(1)))
    beta = certified_smoothness(loss).joint
    assert beta == pytest.approx(1.850475155040, rel=1e-12)
    assert descent_constant(beta, 1.9 / beta) == pytest.approx(0.051338165628, rel=1e-10)
    assert loss.cost.domination(1.5) == pytest.approx(0.165227794658, rel=1e-11)
    general = torch.tensor([point.loss for point in descend(loss, torch.zeros(1), 1.9 / beta, 100)])
    assert_close(run_printed_bound(100).losses, general, relative=1e-12)


@pytest.mark.slow
def test_the_printed_bound_crosses_below_the_loss_within_a_million_steps():
    from skiplens.papers.macdonald2023_regularity.counterexample import run_printed_bound

    run = run_printed_bound(1_000_000)
    assert_close(run.losses[[10**5, 10**6]], torch.tensor([0.201821936035, 0.201542392190]), relative=1e-10)
    assert_close(run.weights[[10**5, 10**6]], torch.tensor([18.28545013, 32.54584397]), relative=1e-8)
    slopes = (1 + run.weights[[10**5, 10**6]].square()) ** -1.5
    decay = math.log10(float(slopes[1] / slopes[0]))  # of en'; λ is its square, up to the factor of the input
    assert (decay, 2 * decay) == pytest.approx((-0.750, -1.500), abs=1e-3)
    assert float(run.valid[-1]) == pytest.approx(0.664964, abs=1e-6)
    assert float(run.printed[-1]) == pytest.approx(0.166326, abs=1e-6)
    assert float(run.printed[-1]) < run.floor < float(run.losses[-1])


def test_weights_of_the_first_layer_grow_no_faster_than_proved():
    from skiplens.papers.macdonald2023_regularity.common import descend
    from skiplens.papers.macdonald2023_regularity.counterexample import counterexample_loss, largest_weight_bound

    loss, start = counterexample_loss(), torch.tensor([1.0, 0.2, 1.0])
    step = 1.9 / SMOOTHNESS["logistic"]
    for number, point in enumerate(descend(loss, start, step, 100)):
        assert abs(float(point.parameters[0])) <= largest_weight_bound(loss, start, step, number)
    quarter = largest_weight_bound(loss, start, step, 10**12) / largest_weight_bound(loss, start, step, 10**8)
    assert math.log(quarter) / math.log(10**4) == pytest.approx(0.25, abs=1e-3)


def test_weight_growth_needs_an_entry_normalised_first_layer():
    from skiplens.base.errors import InvalidInputError
    from skiplens.jacobians.systems.affine import Affine
    from skiplens.jacobians.systems.costs import Logistic
    from skiplens.jacobians.systems.parameterisation import Free
    from skiplens.jacobians.systems.smoothness import TrainingLoss
    from skiplens.papers.macdonald2023_regularity.counterexample import largest_weight_bound

    loss = TrainingLoss(Affine(Free(1, 1), name="plain"), torch.ones(1, 1), Logistic(torch.ones(1)))
    with pytest.raises(InvalidInputError, match="'plain' is not entry-normalised"):
        largest_weight_bound(loss, torch.ones(1), 0.1, 10)
