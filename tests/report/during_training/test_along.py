"""Closed forms on L(w) = ½ Σ h_i w_i²: gradient descent gives w_i(k) = (1 − ηh_i)^k w_i(0), and the Hessian is h."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from skiplens.base.errors import InvalidInputError
from skiplens.readings.reading import Measurement
from skiplens.report.during_training.along import at_losses, at_steps, readings_along
from skiplens.report.during_training.measurer import MeasureAlong, Measurer
from skiplens.training.callbacks import gradient_norm, mean_weight_norm
from skiplens.training.checkpoints import Checkpoint
from skiplens.training.loop import train
from skiplens.training.recipe import Recipe
from tests.tolerances import assert_close
from tests.training.networks import noisy_network, samples

CURVATURES = torch.tensor([4.0, 0.25], dtype=torch.float64)
RATE = 0.1
DATA = (torch.zeros(3, 1), torch.zeros(3, 2))
RECIPE = Recipe(loss="half_squared_error", learning_rate=RATE, steps=40)


class Bowl(nn.Module):
    """A network whose loss is ½ Σ h_i w_i²."""

    def __init__(self, start=(3.0, -4.0), curvatures=CURVATURES) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.tensor(start, dtype=torch.float64))
        self.roots = curvatures.sqrt()

    def forward(self, inputs):
        return (self.roots * self.weights).expand(len(inputs), -1)


def exact_weights(step, start=(3.0, -4.0)):
    return (1 - RATE * CURVATURES) ** step * torch.tensor(start, dtype=torch.float64)


def exact_loss(step, start=(3.0, -4.0)):
    return 0.5 * float(CURVATURES @ exact_weights(step, start) ** 2)


def curvature(model):
    """The largest eigenvalue of the Hessian by autograd."""
    hessian = torch.autograd.functional.hessian(
        lambda w: 0.5 * (model.roots * w).square().sum(), model.weights.detach()
    )
    return float(torch.linalg.eigvalsh(hessian)[-1])


def test_measured_at_steps():
    along = readings_along(Bowl(), DATA, RECIPE, MeasureAlong(lambda model: model.weights, (0, 7, 40)))
    assert [taken.step for taken in along.at_steps()] == [0, 7, 40]
    for taken in along.at_steps():
        assert_close(taken.value, exact_weights(taken.step))
    assert along.taken[7].loss == pytest.approx(exact_loss(7), rel=1e-12)
    assert math.isnan(along.taken[40].loss)


def test_a_loss_is_measured_on_both_sides_of_its_first_crossing():
    along = readings_along(Bowl(), DATA, RECIPE, MeasureAlong(lambda model: 0.0, at_losses=(8.0, 7.9, 1.0)))
    for loss, (before, after) in along.crossings.items():
        assert after == before + 1
        assert exact_loss(after) <= loss < exact_loss(before)
    assert set(along.crossings) == {8.0, 7.9, 1.0}
    assert set(along.taken) == {step for steps in along.crossings.values() for step in steps}


def test_neighbours_have_the_weights_and_gradients_of_their_step():
    seen = {}

    def look(model):
        seen[len(seen)] = (model.weights.detach().clone(), model.weights.grad.clone())
        return 0.0

    along = readings_along(Bowl(), DATA, RECIPE, MeasureAlong(look, at_losses=(5.0,)))
    for (weights, gradient), step in zip(seen.values(), along.crossings[5.0], strict=True):
        assert_close(weights, exact_weights(step))
        assert_close(gradient, CURVATURES * exact_weights(step))


def test_what_is_linear_in_the_loss_is_interpolated_without_error():
    """One curvature h: the squared gradient is 2hL exactly, at every loss and from every start."""
    alike = torch.tensor([0.7, 0.7])
    plan = MeasureAlong(
        lambda model: {"squared": gradient_norm(model) ** 2, "curvature": curvature(model)}, at_losses=(6.0, 3.3, 0.5)
    )
    runs = [readings_along(Bowl((a, -4.0), alike), DATA, RECIPE, plan) for a in (5.0, 3.0, 2.0)]
    squared = at_losses(runs, "squared")
    assert squared.places.tolist() == [6.0, 3.3, 0.5] and squared.along == "loss"
    assert_close(squared.by_run, (2 * 0.7 * squared.places).expand(3, 3))
    assert_close(at_losses(runs, "curvature").by_run, torch.full((3, 3), 0.7))
    # three runs agree to rounding, so their spread is rounding too: sqrt(eps) of the mean is far above it
    assert bool((squared.standard_error <= 1e-8 * squared.mean).all())


def test_mean_and_error_over_runs():
    """By hand: linear interpolation between the two neighbours of the closed form."""
    starts = [(3.0, -4.0), (4.0, 2.0), (3.5, 3.0)]
    plan = MeasureAlong(lambda model: float(model.weights.detach()[0]), at_losses=(2.0,))
    runs = [readings_along(Bowl(start), DATA, RECIPE, plan) for start in starts]
    by_hand = []
    for start in starts:
        after = next(step for step in range(40) if exact_loss(step, start) <= 2.0)
        high, low = exact_loss(after - 1, start), exact_loss(after, start)
        first, last = float(exact_weights(after - 1, start)[0]), float(exact_weights(after, start)[0])
        by_hand.append(first + (high - 2.0) / (high - low) * (last - first))
    found = at_losses(runs, "value", "first weight")
    expected = torch.tensor(by_hand, dtype=torch.float64)
    assert found.name == "first weight"
    assert_close(found.by_run[:, 0], expected)
    assert_close(found.mean, expected.mean()[None])
    assert_close(found.standard_error, (expected.std() / 3**0.5)[None])
    assert_close(found.lowest, expected.min()[None])
    assert_close(found.highest, expected.max()[None])


def test_a_loss_that_a_run_never_came_to_is_missing():
    plan = MeasureAlong(lambda model: 1.0, at_losses=(11.0, 2.0))
    runs = [readings_along(Bowl(start), DATA, RECIPE, plan) for start in ((3.0, -4.0), (2.0, 1.0))]
    found = at_losses(runs, "value")
    assert found.places.tolist() == [11.0, 2.0] and found.runs.tolist() == [1, 2]
    assert found.by_run.isnan().tolist() == [[False, False], [True, False]]
    assert found.mean.tolist() == [1.0, 1.0] and math.isnan(found.standard_error[0])


def test_a_loss_that_is_the_first_one_counts():
    start = exact_loss(0)
    along = readings_along(Bowl(), DATA, RECIPE, MeasureAlong(lambda model: 3.0, at_losses=(start,)))
    assert along.crossings == {start: (0, 0)}
    assert at_losses([along], "value").by_run.tolist() == [[3.0]]


@given(st.lists(st.floats(0.3, 19.9), min_size=1, max_size=5, unique=True))
def test_interpolated_values_lie_between_their_neighbours(losses):
    plan = MeasureAlong(lambda model: float(model.weights.detach().norm()), at_losses=tuple(losses))
    along = readings_along(Bowl(), DATA, RECIPE, plan)
    found = at_losses([along], "value")
    for loss, value in zip(found.places.tolist(), found.by_run[0].tolist(), strict=True):
        before, after = along.crossings[loss]
        assert along.taken[after].value <= value <= along.taken[before].value


def test_steps_of_several_runs():
    plan = MeasureAlong(gradient_norm, (0, 5))
    found = at_steps(
        [readings_along(Bowl(), DATA, RECIPE, plan), readings_along(Bowl((1.0, 1.0)), DATA, RECIPE, plan)], "value"
    )
    expected = [
        [float((CURVATURES * exact_weights(step, start)).norm()) for step in (0, 5)]
        for start in ((3.0, -4.0), (1.0, 1.0))
    ]
    assert found.along == "step" and found.places.tolist() == [0, 5]
    assert_close(found.by_run, torch.tensor(expected))


def test_the_running_loss_is_the_mean_over_an_epoch():
    plan = MeasureAlong(lambda model: 0.0, at_steps=(1, 4), loss="running")
    along = readings_along(noisy_network(), samples(), Recipe(batch_size=8, epochs=2), plan)
    losses = along.history.losses
    assert along.taken[1].loss == pytest.approx(float(losses[:2].mean()), rel=1e-14)
    assert along.taken[4].loss == pytest.approx(float(losses[2:5].mean()), rel=1e-14)


def test_a_function_may_be_the_loss_and_sees_the_end():
    plan = MeasureAlong(lambda model: 0.0, at_losses=(exact_loss(39.5),), loss=lambda model: exact_of(model), every=7)
    along = readings_along(Bowl(), DATA, RECIPE, plan)
    assert along.crossings == {exact_loss(39.5): (35, 40)}
    assert along.taken[40].loss == pytest.approx(exact_loss(40), rel=1e-12)


def exact_of(model):
    return 0.5 * float((model.roots * model.weights.detach()).square().sum())


def test_neither_the_model_nor_the_run_is_changed_by_looking():
    model = noisy_network()
    before = copy.deepcopy(model.state_dict())
    recipe = Recipe(batch_size=8, epochs=3, learning_rate=0.3)

    def rude(measured):
        measured.train()
        measured(samples()[0])
        measured.zero_grad()
        return torch.rand(())

    along = readings_along(model, samples(), recipe, MeasureAlong(rude, (0, 3), (1.1, 1.0)))
    assert along.crossings  # else nothing was looked at between two steps
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    undisturbed = copy.deepcopy(model)
    assert torch.equal(along.history.losses, train(undisturbed, samples(), recipe).losses)


def test_a_run_may_end_when_everything_was_measured():
    plan = MeasureAlong(lambda model: 0.0, at_steps=(4,), at_losses=(12.0,), stop_when_done=True)
    along = readings_along(Bowl(), DATA, RECIPE, plan)
    last = max(4, along.crossings[12.0][1])
    assert along.history.outcome == "everything was measured" and along.history.steps == last + 1
    assert set(along.taken) == {4, *along.crossings[12.0]}


def test_measurements_are_in_evaluation_mode():
    modes = []
    readings_along(
        noisy_network(), samples(), Recipe(steps=2), MeasureAlong(lambda model: modes.append(model.training), (0,))
    )
    assert modes == [False]


def test_readings_survive_an_interruption(tmp_path):
    """A run stopped on the way and taken up from its file measures what an undisturbed one does."""

    class PowerError(Exception):
        pass

    def measure(model):
        return Measurement(name="w", arrays={"weights": model.weights.detach().clone()})

    def cut(moment):
        if moment.step == 12:
            raise PowerError

    plan = MeasureAlong(measure, (3, 20), (9.0, 0.5))
    keep = Checkpoint(tmp_path / "run.ckpt", every_seconds=1e9, every_steps=5)
    whole = readings_along(Bowl(), DATA, RECIPE, plan)
    with pytest.raises(PowerError):
        train(Bowl(), DATA, RECIPE, callbacks=[Measurer(plan), Cutting(cut)], checkpoint=keep)
    measurer = Measurer(plan)
    train(Bowl(), DATA, RECIPE, callbacks=[measurer, Cutting(lambda moment: None)], checkpoint=keep)
    assert measurer.crossings == whole.crossings and set(measurer.taken) == set(whole.taken)
    for step, taken in measurer.taken.items():
        assert torch.equal(taken.value["weights"], whole.taken[step].value["weights"])
        assert taken.loss == whole.taken[step].loss


class Cutting(Measurer):
    """Calls a function after each step."""

    def __init__(self, function):
        super().__init__(MeasureAlong(lambda model: 0.0, (10**6,)))
        self.function = function

    def after_step(self, moment):
        self.function(moment)


def test_another_plan_does_not_go_on_from_the_file(tmp_path):
    readings_along(Bowl(), DATA, RECIPE, MeasureAlong(curvature, (1,)), checkpoint=tmp_path / "run.ckpt")
    with pytest.raises(InvalidInputError, match="differs in callbacks"):
        readings_along(Bowl(), DATA, RECIPE, MeasureAlong(curvature, (2,)), checkpoint=tmp_path / "run.ckpt")


def test_a_diverged_run_keeps_what_was_measured():
    recipe = Recipe(loss="half_squared_error", learning_rate=1e100, steps=40)
    along = readings_along(Bowl(), DATA, recipe, MeasureAlong(lambda model: 1.0, (0, 1, 39, 40)))
    assert along.history.diverged and sorted(along.taken) == [0, 1]


def test_norms_of_the_papers():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
        model[1].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    assert mean_weight_norm(model) == 3.0
    with pytest.raises(InvalidInputError, match="has no gradients"):
        gradient_norm(model)
    with pytest.raises(InvalidInputError, match="PReLU has no weight matrix"):
        mean_weight_norm(nn.PReLU())


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ({}, "Say when to measure"),
        ({"at_steps": (-1,)}, "at_steps has -1; steps are whole numbers from 0 on"),
        ({"at_steps": (1.5,)}, r"at_steps has 1\.5"),
        ({"at_losses": (math.nan,)}, "at_losses has nan; give finite numbers"),
        ({"at_steps": (1,), "every": 0}, "every is 0; look at the loss every 1 step or more"),
    ],
)
def test_times_that_never_come_are_refused(times, message):
    with pytest.raises(InvalidInputError, match=message):
        MeasureAlong(curvature, **times)


def test_unknown_losses_and_quantities_are_told():
    with pytest.raises(InvalidInputError, match=r"loss='runing' is unknown\. Did you mean running"):
        Measurer(MeasureAlong(curvature, (1,), loss="runing"))
    along = readings_along(Bowl(), DATA, RECIPE, MeasureAlong(curvature, (1,), (3.0,)))
    with pytest.raises(InvalidInputError, match="'index' is no number of a measurement of type float"):
        at_losses([along], "index")
    with pytest.raises(InvalidInputError, match="There are no runs"):
        at_losses([], "value")
    never = readings_along(Bowl(), DATA, RECIPE, MeasureAlong(curvature, at_losses=(1e9,)))
    with pytest.raises(InvalidInputError, match="None of the runs was measured at any loss"):
        at_losses([never], "value")


def test_quantities_of_readings_by_name_and_by_function():
    def measure(model):
        return Measurement(name="w", arrays={"first": model.weights.detach()[0]})

    along = readings_along(Bowl(), DATA, RECIPE, MeasureAlong(measure, (0,)))
    assert at_steps([along], lambda reading: reading["first"]).by_run.tolist() == [[3.0]]
