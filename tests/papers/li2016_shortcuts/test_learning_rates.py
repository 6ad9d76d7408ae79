"""The grids against reference values, which another program made, and against training one by one."""

import dataclasses

import pytest
import torch

from skiplens import zoo
from skiplens.papers.li2016_shortcuts import learning_rates
from skiplens.papers.li2016_shortcuts.common import digit_moments, whitened_digits
from skiplens.papers.li2016_shortcuts.learning_rates import LinearGrid, RectifiedGrid
from skiplens.training.loop import train
from skiplens.training.recipe import Recipe
from skiplens.zoo.li2016 import matrices
from tests.papers.li2016_shortcuts.reference_starts import start
from tests.real_data import real
from tests.tolerances import assert_close

SMALL = {"depth": 4, "exponents": (-2.0, -1.0, 1.0), "networks": 2, "epochs": 40, "source": "sample"}

FIGURE_7 = {  # family and depth: log10(mean final loss - L*) of seeds 100 to 104 at log10 of the best rate
    ("xavier", 4): (-3.27, -0.75),
    ("orthogonal", 4): (-5.18, -0.25),
    ("1-shortcut", 4): (-3.96, -0.25),
    ("2-shortcut", 4): (-4.67, -0.25),
    ("3-shortcut", 6): (-3.56, -0.50),
    ("xavier", 8): (-1.97, -1.25),
    ("orthogonal", 8): (-3.31, -0.50),
    ("1-shortcut", 8): (-3.16, -0.50),
    ("2-shortcut", 8): (-6.78, 0.25),
    ("3-shortcut", 12): (-3.00, -0.50),
    ("2-shortcut", 16): (-7.64, 0.50),
}
FIGURE_8 = {  # final loss of seeds 100 to 102 with 1,000 images
    ("xavier", 4): (0.1711, -0.5),
    ("orthogonal", 4): (0.1627, 0.0),
    ("2-shortcut", 4): (0.2289, -0.5),
    ("2-shortcut", 8): (0.1280, -0.5),
}


def with_reference_starts(monkeypatch, first_seed):
    """Let the grids start where the runs of the reference values start."""

    def starts(settings):
        drawn = [start(settings.family, settings.depth, first_seed + net) for net in range(settings.networks)]
        return torch.stack(drawn), torch.full((settings.networks,), 10 ** settings.exponents[0])

    monkeypatch.setattr(learning_rates, "_starts", starts)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "depth"), FIGURE_7)
def test_figure_7_against_reference_values(family, depth, monkeypatch):
    """On all of MNIST, which is fetched if it is not there."""
    real("mnist")
    with_reference_starts(monkeypatch, 100)
    expected, exponent = FIGURE_7[family, depth]
    found = learning_rates.linear_grid(LinearGrid(family=family, depth=depth, exponents=(exponent,), networks=5))
    assert found["excess"].mean().log10().item() == pytest.approx(expected, abs=0.011)  # two printed decimals


@pytest.mark.parametrize(("family", "depth"), FIGURE_8)
def test_figure_8_against_reference_values(family, depth, monkeypatch):
    with_reference_starts(monkeypatch, 100)
    expected, exponent = FIGURE_8[family, depth]
    settings = RectifiedGrid(
        family=family, depth=depth, exponents=(exponent,), networks=3, source="sample", samples=1000
    )
    # 1000 epochs at the largest rate amplify float32 rounding: float64 itself is 3.5 % away from float32.
    assert learning_rates.rectified_grid(settings)["losses"].mean().item() == pytest.approx(expected, rel=0.05)


def network(settings, which):
    """A network of the zoo with the weights of a start."""
    if settings.family in ("xavier", "orthogonal"):
        activation = "identity" if isinstance(settings, LinearGrid) else "relu"
        model = zoo.build("plain_network", depth=settings.depth, activation=activation)
    else:
        n, mid = int(settings.family[0]), "identity" if isinstance(settings, LinearGrid) else "relu"
        model = zoo.build("shortcut_network", units=settings.depth // n, branch_depth=n, mid=mid)
    model = model.double()
    starts, _ = learning_rates._starts(settings)
    for parameter, value in zip(matrices(model), starts[which], strict=True):
        parameter.data.copy_(value)
    return model


@pytest.mark.parametrize("family", ["xavier", "orthogonal", "1-shortcut", "2-shortcut", "3-shortcut"])
def test_a_linear_grid_is_what_training_one_by_one_gives(family):
    settings = LinearGrid(**{**SMALL, "family": family, "depth": 6})
    grid = learning_rates.linear_grid(settings)
    inputs, targets = whitened_digits("sample")
    recipe = Recipe(loss="half_squared_error", learning_rate=0.01, steps=40)
    model = network(settings, 1)
    history = train(model, (inputs, targets), recipe)
    with torch.no_grad():
        residual = model(inputs) - targets
    loss = residual.square().sum() / (2 * len(residual))
    assert_close(grid["first_losses"][1], history.losses[0])
    assert_close(grid["losses"][0, 1], loss, 1e-11)
    excess = loss - digit_moments("sample").lowest_loss()
    assert grid["excess"][0, 1].item() == pytest.approx(excess.item(), rel=1e-10)


@pytest.mark.parametrize("family", ["orthogonal", "2-shortcut"])
def test_a_rectified_grid_is_what_training_one_by_one_gives(family):
    settings = RectifiedGrid(**{**SMALL, "family": family, "samples": 200})
    grid = learning_rates.rectified_grid(settings)
    inputs, targets = whitened_digits("sample", 200)
    recipe = Recipe(loss="half_squared_error", learning_rate=0.1, steps=41)
    history = train(network(settings, 1), (inputs, targets), recipe)  # in float64
    assert grid["losses"].dtype == torch.float64
    assert_close(grid["losses"][1, 1].float(), history.losses[40].float(), 1e-4)


def test_what_diverges_is_infinite():
    grid = learning_rates.linear_grid(LinearGrid(**{**SMALL, "family": "orthogonal"}))
    assert grid["excess"].shape == grid["losses"].shape == (3, 2)
    assert bool(torch.isinf(grid["excess"][2]).all()) and bool(torch.isinf(grid["losses"][2]).all())
    assert bool(torch.isfinite(grid["excess"][:2]).all())


def test_a_start_is_the_same_whatever_surrounds_it():
    settings = LinearGrid(**SMALL)
    starts, rates = learning_rates._starts(settings)
    assert rates.tolist() == pytest.approx([0.01, 0.01, 0.1, 0.1, 10, 10])
    more, _ = learning_rates._starts(dataclasses.replace(settings, networks=3, exponents=(0.0,), epochs=7))
    assert torch.equal(starts[:2], starts[2:4]) and torch.equal(more[:2], starts[:2])
    other, _ = learning_rates._starts(dataclasses.replace(settings, seed=1))
    assert not torch.equal(other, starts)
