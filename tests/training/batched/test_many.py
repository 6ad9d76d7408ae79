import pytest
import torch
from torch import nn

from skiplens import zoo
from skiplens.base.errors import InvalidInputError
from skiplens.base.randomness import Randomness
from skiplens.training.batched.many import RatesAndSeeds, train_many
from skiplens.training.batched.plan import BatchedPlan
from skiplens.training.loop import train
from skiplens.training.recipe import Recipe
from tests.tolerances import assert_close
from tests.training.networks import samples

GRID = RatesAndSeeds((0.05, 0.2), seeds=(0, 1, 2))


def build(seed: int) -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 3))
    generator = Randomness(seed).torch()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4, generator=generator)
    model[3].bias.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(steps=12),
        Recipe(batch_size=8, epochs=3, momentum=0.9, weight_decay=0.01, seed=4),
        Recipe(batch_size=5, epochs=2, momentum=0.5, nesterov=True, schedule="cosine", warmup_epochs=1),
        Recipe(batch_size=8, epochs=4, milestones=(1, 3)),
    ],
    ids=["plain", "momentum", "nesterov", "milestones"],
)
def test_each_network_is_what_train_makes_of_it_alone(recipe):
    steps = recipe.steps or recipe.epochs * -(-22 // recipe.batch_size)
    runs = train_many(build, GRID, samples(), recipe, BatchedPlan(steps, record_at=tuple(range(steps))))
    for rate, parameters in enumerate(zip(*runs.parameters.values(), strict=True)):
        model = build(GRID.seeds[rate % 3])
        fixed = model[3].bias.clone()
        alone = Recipe(**{**recipe.to_json(), "learning_rate": GRID.learning_rates[rate // 3]})
        history = train(model, samples(), alone)
        assert_close(runs.loss_history[:, rate], history.losses, 1e-11)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for ours, expected in zip(parameters, trained, strict=True):
            assert_close(ours, expected.detach(), 1e-11)
        assert torch.equal(model[3].bias, fixed) and "3.bias" not in runs.parameters


def test_a_residual_network_of_the_zoo():
    def shortcut(seed: int) -> nn.Module:
        return zoo.build("shortcut_network", seed=seed, units=2, width=4).double()

    inputs = torch.randn(9, 4)
    recipe = Recipe(loss="half_squared_error", steps=8)
    runs = train_many(shortcut, RatesAndSeeds((0.1,), (5, 6)), (inputs, inputs.flip(1)), recipe)
    for net, seed in enumerate((5, 6)):
        model = shortcut(seed)
        train(model, (inputs, inputs.flip(1)), recipe)
        for ours, expected in zip(runs.parameters.values(), model.parameters(), strict=True):
            assert_close(ours[net], expected.detach(), 1e-11)


def test_norms_are_those_of_the_matrices_and_of_the_whole_gradient():
    runs = train_many(build, RatesAndSeeds((0.05,), (1,)), samples(), Recipe(steps=1), BatchedPlan(1, record_at=(0,)))
    model = build(1)
    nn.functional.cross_entropy(model(samples()[0]), samples()[1]).backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])
    assert_close(runs.gradient_norm_history[0, 0], gradient.norm())
    assert_close(runs.mean_norm_history[0, 0], (model[0].weight.norm() + model[3].weight.norm()).detach() / 2)


def test_a_table_has_rates_and_seeds():
    assert GRID.table(torch.arange(6)).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_memory_that_runs_out_halves_the_models_at_once(monkeypatch):
    from skiplens.training.batched import many as stacked

    expected = train_many(build, GRID, samples(), Recipe(steps=3)).losses
    real, sizes = stacked.vmap, []

    def short_of_memory(function, chunk_size):
        sizes.append(chunk_size)
        if chunk_size > 2:
            raise MemoryError("not enough memory")
        return real(function, chunk_size=chunk_size)

    monkeypatch.setattr(stacked, "vmap", short_of_memory)
    assert_close(train_many(build, GRID, samples(), Recipe(steps=3)).losses, expected, 1e-12)
    assert sizes[:3] == [6, 3, 1]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda seed: nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)), "Dropout of Sequential draws at random"),
        (lambda seed: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), "track_running_stats=False"),
        (lambda seed: nn.Linear(4, 3).requires_grad_(False), "Linear has no parameter to train"),
    ],
)
def test_models_that_cannot_be_trained_together_are_refused(model, message):
    with pytest.raises(InvalidInputError, match=message):
        train_many(model, GRID, samples(), Recipe(steps=2))


@pytest.mark.parametrize(
    "change", [{"optimiser": "adam"}, {"augmentation": "flip"}, {"precision": "bfloat16"}, {"channels_last": True}]
)
def test_other_recipes_are_refused(change):
    name, value = next(iter(change.items()))
    with pytest.raises(InvalidInputError, match=f"train_many wants {name}=.*the recipe has {value!r}"):
        train_many(build, GRID, samples(), Recipe(steps=2, **change))


@pytest.mark.parametrize(("rates", "seeds"), [((), (0,)), ((0.1,), ()), ((0.1, 0.0), (0,))])
def test_an_empty_grid_is_refused(rates, seeds):
    with pytest.raises(InvalidInputError, match="has no networks to train"):
        RatesAndSeeds(rates, seeds)
