import copy

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from skiplens.base.errors import InvalidInputError
from skiplens.training.callbacks import Callback
from skiplens.training.loop import train
from skiplens.training.recipe import Recipe
from tests.tolerances import assert_close
from tests.training.networks import Point, noisy_network, samples

START = torch.tensor([3.0, -4.0], dtype=torch.float64)
ORIGIN = (torch.zeros(5, 1), torch.zeros(5, 2))
NOISY = Recipe(batch_size=8, epochs=4, learning_rate=0.05, momentum=0.9, seed=3)


class Watch(Callback):
    """Keeps what it is told."""

    def __init__(self):
        self.before, self.after, self.ends = [], [], []

    def before_step(self, moment):
        self.before.append(
            (moment.step, moment.epoch, moment.loss, [p.detach().clone() for p in moment.model.parameters()])
        )

    def after_step(self, moment):
        self.after.append((moment.step, moment.epoch, moment.loss, moment.batch))

    def at_end(self, moment):
        self.ends.append(moment.step)


def test_gradient_descent_on_a_square_is_a_geometric_sequence():
    """Closed form: the loss ½‖w‖² has gradient w, so w_k = (1 − η)^k w_0."""
    model = Point(START)
    history = train(model, ORIGIN, Recipe(loss="half_squared_error", learning_rate=0.1, steps=20))
    assert_close(history.losses, 12.5 * 0.9 ** (2 * torch.arange(20.0, dtype=torch.float64)))
    assert_close(model.point.detach(), START * 0.9**20)
    assert history.finished and history.steps == 20 and history.steps_per_epoch == 1


def test_momentum_and_weight_decay_follow_their_recurrence():
    recipe = Recipe(loss="half_squared_error", learning_rate=0.1, momentum=0.9, weight_decay=0.5, steps=15)
    model = Point(START)
    train(model, ORIGIN, recipe)
    w, v = START.clone(), torch.zeros(2)
    for _ in range(15):
        v = 0.9 * v + w + 0.5 * w
        w = w - 0.1 * v
    assert_close(model.point.detach(), w)


def test_nesterov_looks_ahead():
    recipe = Recipe(loss="half_squared_error", learning_rate=0.1, momentum=0.9, nesterov=True, steps=15)
    model = Point(START)
    train(model, ORIGIN, recipe)
    w, v = START.clone(), torch.zeros(2)
    for _ in range(15):
        gradient, v = w, 0.9 * v + w
        w = w - 0.1 * (gradient + 0.9 * v)
    assert_close(model.point.detach(), w)


@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
def test_adam_follows_its_recurrence(optimiser):
    recipe = Recipe(loss="half_squared_error", optimiser=optimiser, learning_rate=0.1, weight_decay=0.3, steps=9)
    model = Point(START)
    train(model, ORIGIN, recipe)
    w, m, v = START.clone(), torch.zeros(2), torch.zeros(2)
    for k in range(1, 10):
        gradient = w if optimiser == "adamw" else w + 0.3 * w
        w = w * (1 - 0.1 * 0.3) if optimiser == "adamw" else w
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        w = w - 0.1 * (m / (1 - 0.9**k)) / ((v / (1 - 0.999**k)).sqrt() + 1e-8)
    assert_close(model.point.detach(), w, 1e-11)  # a hundred roundings of the bias corrections beside the sums


def test_the_same_seed_gives_the_same_bits_whatever_else_is_drawn(seed):
    recipe = Recipe(batch_size=8, epochs=4, learning_rate=0.05, seed=seed)
    first, second = noisy_network(), noisy_network()
    history = train(first, samples(), recipe)
    torch.manual_seed(99)
    again = train(second, samples(), recipe, callbacks=[lambda moment: torch.rand(3)])
    assert torch.equal(history.losses, again.losses)
    assert all(map(torch.equal, first.parameters(), second.parameters()))
    other = train(noisy_network(), samples(), Recipe(batch_size=8, epochs=4, learning_rate=0.05, seed=seed + 1))
    assert not torch.equal(history.losses, other.losses)


def test_global_generators_and_modes_are_as_before():
    model = noisy_network()
    model[1].eval()
    torch.manual_seed(7)
    before = torch.get_rng_state()
    train(model, samples(), NOISY)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training and not model[1].training


def test_each_epoch_sees_every_sample_once_in_a_new_order():
    watch = Watch()
    inputs, _ = samples(22)
    train(noisy_network(), (inputs, torch.arange(22) % 3), Recipe(batch_size=8, epochs=2), callbacks=[watch])
    seen = [batch.inputs for *_, batch in watch.after]
    assert [len(batch) for batch in seen] == [8, 8, 6, 8, 8, 6]
    first, second = torch.cat(seen[:3]), torch.cat(seen[3:])
    assert not torch.equal(first, second)
    for epoch in (first, second):
        assert torch.equal(epoch.sort(0).values, inputs.sort(0).values)


def test_moments_say_where_the_run_is():
    watch, model = Watch(), noisy_network()
    start = [parameter.detach().clone() for parameter in model.parameters()]
    history = train(model, samples(16), Recipe(batch_size=8, epochs=2), callbacks=[watch])
    assert [(step, epoch) for step, epoch, *_ in watch.before] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert [(step, epoch) for step, epoch, *_ in watch.after] == [(1, 0), (2, 1), (3, 1), (4, 2)]
    assert [loss for _, _, loss, _ in watch.before] == history.losses.tolist()
    assert all(map(torch.equal, watch.before[0][3], start))
    assert watch.ends == [4]


def test_gradients_are_there_before_the_update():
    class Gradient(Callback):
        def before_step(self, moment):
            moment.record("gradient", moment.model.point.grad.norm())

    history = train(Point(START), ORIGIN, Recipe(loss="half_squared_error", steps=3), callbacks=[Gradient()])
    assert_close(history.recorded["gradient"], 5 * 0.9 ** torch.arange(3.0))
    assert history.recorded_steps["gradient"].tolist() == [0, 1, 2]


def test_a_run_that_diverges_ends_with_a_reason_and_its_last_finite_weights():
    model = Point(START)
    history = train(model, ORIGIN, Recipe(loss="half_squared_error", learning_rate=1e120, steps=50))
    assert history.diverged and history.outcome == "diverged at step 2: the loss is inf"
    assert history.steps == 2 and bool(torch.isfinite(history.losses).all())
    assert bool(torch.isfinite(model.point).all())


def test_a_callback_may_end_the_run():
    def enough(moment):
        if moment.loss < 5:
            moment.stop("low enough")

    history = train(Point(START), ORIGIN, Recipe(loss="half_squared_error", steps=50), callbacks=[enough])
    assert history.outcome == "low enough" and not history.finished and not history.diverged
    assert history.losses[-1] < 5 <= history.losses[-2]


def test_a_loader_gives_its_batches_as_they_come_and_shuffles_by_the_seed():
    loader = DataLoader(TensorDataset(*samples()), batch_size=8, shuffle=True)
    runs = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        watch = Watch()
        train(noisy_network(), loader, Recipe(epochs=2), callbacks=[watch])
        runs.append(torch.cat([batch.inputs for *_, batch in watch.after]))
    assert torch.equal(*runs)
    assert not torch.equal(runs[0][:22], runs[0][22:])


def test_fresh_batches_are_drawn_each_step():
    watch = Watch()

    def draw(generator):
        return torch.randn(4, 1, generator=generator), torch.zeros(4, 2)

    train(Point(START), draw, Recipe(loss="half_squared_error", steps=3), callbacks=[watch])
    batches = [batch.inputs for *_, batch in watch.after]
    assert not torch.equal(batches[0], batches[1]) and not torch.equal(batches[1], batches[2])


def test_a_list_of_batches_and_a_generator_are_sources_too():
    inputs, targets = samples(16)
    pieces = [(inputs[:8], targets[:8]), (inputs[8:], targets[8:])]
    assert train(noisy_network(), pieces, Recipe(epochs=3)).steps == 6
    with pytest.raises(InvalidInputError, match="one-shot iterator"):
        train(noisy_network(), iter(pieces), Recipe(epochs=3))


def test_learning_rates_are_recorded():
    recipe = Recipe(loss="half_squared_error", learning_rate=0.1, epochs=4, milestones=(2,))
    assert train(Point(START), ORIGIN, recipe).learning_rates.tolist() == pytest.approx([0.1, 0.1, 0.01, 0.01])


def test_float32_stays_float32():
    model = noisy_network().float()
    inputs, targets = samples()
    train(model, (inputs.float(), targets), NOISY)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


def test_mixed_precision_trains_full_precision_weights():
    model = noisy_network().float()
    full = copy.deepcopy(model)
    inputs, targets = samples()
    recipe = Recipe(batch_size=8, epochs=2, learning_rate=0.01)
    mixed = train(model, (inputs.float(), targets), Recipe.from_json(recipe.to_json() | {"precision": "bfloat16"}))
    exact = train(full, (inputs.float(), targets), recipe)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    assert not torch.equal(mixed.losses, exact.losses)
    assert_close(mixed.losses, exact.losses, 0.05)  # bfloat16 has 8 bits: a few roundings of 2^-8


def test_frozen_parameters_stay():
    model = noisy_network()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    train(model, samples(), NOISY)
    assert torch.equal(model[0].weight, before)


def test_progress_is_told():
    told = []
    train(Point(START), ORIGIN, Recipe(loss="half_squared_error", steps=2), progress=lambda *words: told.append(words))
    assert told == [("training", 0, 2), ("training", 1, 2), ("training", 2, 2)]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (3, "model is of type int; hand over a torch.nn.Module"),
        (nn.ReLU(), "ReLU has no parameters, so there is nothing to train"),
        (Point(START).requires_grad_(False), "No parameter of the model requires a gradient"),
    ],
)
def test_what_cannot_be_trained_is_refused(model, message):
    with pytest.raises(InvalidInputError, match=message):
        train(model, ORIGIN, Recipe())


def test_a_batch_size_does_not_fit_a_loader():
    with pytest.raises(InvalidInputError, match="asks for batches of 4 samples, but data already comes in batches"):
        train(noisy_network(), [samples(), samples()], Recipe(batch_size=4))
