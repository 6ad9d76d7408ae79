import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F

import skiplens as sl
from skiplens import zoo
from skiplens.base.errors import InvalidInputError, SettingsError
from skiplens.readings.file import read_file, write_file
from skiplens.report.during_training.depth import depth_during_training
from skiplens.report.during_training.depth_reading import DepthHistory
from skiplens.training.loop import train
from skiplens.training.recipe import Recipe
from tests.networks import Formula, drawn, linear, noise
from tests.tolerances import assert_close

RECIPE = Recipe(learning_rate=0.05, batch_size=4, steps=5, seed=3)


def task():
    model = zoo.build("ensemble_resnet", depth=4, width=8, scaling="centred", output_scale=1.0).double()
    return model, (noise(12, 20), torch.arange(12) % 5)


@pytest.fixture(scope="module")
def followed():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # the fixture outlives the one that sets it for each test
    model, data = task()
    history = depth_during_training(model, data, RECIPE, every=2, samples=6)
    torch.set_default_dtype(before)
    return history


def test_moments_are_the_start_each_look_and_the_end(followed):
    assert followed.steps.tolist() == [0, 2, 4, 5] and followed.moments == 4
    assert followed.energy.shape == (4, 4) and followed.scales.shape == (4, 3) and len(followed.laws) == 4
    assert followed.outcome == "finished" and followed.of == "signal"


def test_each_moment_is_the_spectrum_of_a_network_trained_so_far(followed):
    for row, steps in ((0, 0), (2, 4), (3, 5)):
        model, data = task()
        if steps:
            # the schedule is constant, so a shorter run is the beginning of a longer one
            train(model, data, dataclasses.replace(RECIPE, steps=steps))
        inputs, targets = data[0][:6], data[1][:6]
        spectrum = sl.path_spectrum(model.train(), inputs, centre=True, centre_samples=True)
        assert_close(followed.energy[row], spectrum.energy)
        assert float(followed.mean_depth[row]) == pytest.approx(spectrum.mean_depth, rel=1e-12)
        assert int(followed.peak_depth[row]) == spectrum.peak_depth
        assert float(followed.coherent_depth[row]) == pytest.approx(spectrum.coherent_depth, rel=1e-12)
        assert float(followed.losses[row]) == pytest.approx(F.cross_entropy(model(inputs), targets).item(), rel=1e-12)
        scales = torch.stack([block[0][2].scale.detach().abs().mean() for block in map(list_of, model.blocks)])
        assert_close(followed.scales[row], scales)
        matrices = torch.cat([p.detach().flatten() for n, p in model.blocks.named_parameters() if p.ndim > 1])
        assert float(followed.weight_scale[row]) == pytest.approx(float(matrices.square().mean().sqrt()), rel=1e-12)


def list_of(block):
    return [next(iter(block.children()))]


def test_the_measured_change_of_a_scale_is_that_of_the_training_step(followed):
    """λ moves by −μ ∂L/∂λ = −μ (∂L/∂τ)/λ in a step on the samples looked at."""
    model, (inputs, targets) = task()
    recipe = Recipe(learning_rate=0.05, steps=1)
    history = depth_during_training(model, (inputs, targets), recipe, every=1, samples=12)
    moved = history.scales[1] - history.scales[0]
    assert_close(moved, -0.05 * history.block_slope_measured[0] / history.scales[0], relative=1e-9)


def test_the_model_stays_as_it_was_and_the_same_run_gives_the_same_numbers(followed):
    model, data = task()
    before = copy.deepcopy(model.state_dict())
    again = depth_during_training(model, data, RECIPE, every=2, samples=6)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(again.energy, followed.energy) and torch.equal(again.block_drive, followed.block_drive)


def test_a_run_goes_on_from_its_checkpoint(followed, tmp_path):
    model, data = task()
    for _ in range(2):  # the second time everything is there already
        again = depth_during_training(model, data, RECIPE, every=2, samples=6, checkpoint=tmp_path / "run.ckpt")
        assert torch.equal(again.energy, followed.energy) and again.laws == followed.laws


def test_a_history_is_a_reading(followed, tmp_path):
    write_file(tmp_path / "history", followed)
    back = read_file(tmp_path / "history")
    assert isinstance(back, DepthHistory) and torch.equal(back.energy, followed.energy) and back.laws == followed.laws


def test_looks_at_what_is_given_and_without_forces():
    model, data = task()
    probe = (noise(7, 20, seed=9), torch.zeros(7, dtype=torch.int64))
    history = depth_during_training(model, data, RECIPE, every=10, probe=probe, forces=False, mode="eval")
    assert history.steps.tolist() == [0, 5] and history.radial_slope.numel() == 0
    expected = sl.path_spectrum(model.eval(), probe[0], centre=True, centre_samples=True).energy
    assert_close(history.energy[0], expected)


def test_fresh_batches_and_whole_epochs():
    model, data = task()

    def draw(generator):
        chosen = torch.randperm(12, generator=generator)[:4]
        return data[0][chosen], data[1][chosen]

    assert depth_during_training(model, draw, Recipe(learning_rate=0.05, steps=2), every=1).steps.tolist() == [0, 1, 2]
    whole = depth_during_training(model, data, Recipe(learning_rate=0.05, batch_size=5, epochs=2), every=4, samples=6)
    assert whole.steps.tolist() == [0, 4, 6]


def test_derivatives_are_followed_where_the_signal_has_no_frozen_form():
    model = drawn(Formula(lambda m, x: x + torch.sigmoid(m.f(x)), f=linear()))
    history = depth_during_training(model, (noise(4, 3), noise(4, 3, seed=1)), Recipe(steps=1, loss="mse"))
    assert history.of == "jacobian" and "there are no forces" in history.notes[-1]


def test_bad_input():
    model, data = task()
    with pytest.raises(SettingsError, match="every=0; ask for at least 1"):
        depth_during_training(model, data, RECIPE, every=0)
    with pytest.raises(TypeError, match="evry"):
        depth_during_training(model, data, RECIPE, evry=2)
    with pytest.raises(InvalidInputError, match=r"takes the loss from the model.*Name a loss"):
        depth_during_training(model, data, dataclasses.replace(RECIPE, loss="model"), forces=False)
    with pytest.raises(InvalidInputError, match="inputs alone"):
        depth_during_training(model, data, RECIPE, probe=data[0])
