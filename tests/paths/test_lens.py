import math

import torch
from torch import nn

from skiplens.base.errors import SkiplensError
from skiplens.base.progress import silent
from skiplens.base.randomness import Randomness
from skiplens.graph.batch import Batch
from skiplens.graph.lens import OPERATIONS, Subject
from skiplens.paths.report import PathsLens, paths_section, paths_sentence
from skiplens.paths.spectrum import path_spectrum
from skiplens.report.lenses import figures_of
from tests.lens_cases import subject
from tests.networks import Formula, chain, drawn, linear, noise
from tests.paths.frozen_by_hand import Perceptrons
from tests.tolerances import assert_close


def test_the_lens_reads_the_spectrum_of_the_signal():
    looked_at = subject()
    reading = PathsLens()(looked_at, Randomness(0), silent)
    assert_close(reading.energy, path_spectrum(looked_at.model, looked_at.batch.inputs).energy)
    assert reading.of == "signal" and len(reading.block_energy) == 2 and len(reading.incoherent) == 3


def test_the_derivative_is_looked_at_where_the_signal_has_no_frozen_form():
    model = drawn(Formula(lambda m, x: x + torch.sigmoid(m.f(x)), f=linear()))
    reading = PathsLens()(Subject(model, Batch(noise(3, 3), torch.zeros(3)), "sigmoid"), Randomness(0), silent)
    assert reading.of == "jacobian" and "aten.sigmoid" in reading.notes[-1] and "random direction" in reading.notes[-1]


def test_a_deep_network_in_words_and_pictures():
    reading = path_spectrum(drawn(Perceptrons(5, hidden=8)), noise(4, 3), pairs=True, signs=2)
    section = paths_section(reading)
    assert f"passes {reading.mean_depth:.1f} of 5 branches" in section.sentence and "law with β" in section.sentence
    assert len(section.rows) == 5
    assert [figure.name for figure in figures_of(reading)] == [
        "energy_by_order",
        "energy_by_order_logarithmic",
        "energy_by_block",
        "energy_by_pair",
        "depth_by_sample",
    ]


def test_a_chain_in_words_and_pictures():
    reading = path_spectrum(chain(), noise(1, 3))
    assert "no residual join" in paths_sentence(reading)
    assert figures_of(reading) == ()  # one path is no spectrum


def test_one_block_has_no_law_to_tell():
    reading = path_spectrum(nn.Sequential(drawn(Formula(lambda m, x: x + m.f(x), f=linear()))), noise(2, 3))
    assert reading.law == "" and paths_sentence(reading).endswith("on average.")


def test_the_gradient_is_read_beside_the_signal():
    looked_at = subject()
    reading = PathsLens()(looked_at, Randomness(0), silent)
    alone = path_spectrum(looked_at.model, looked_at.batch.inputs, of="gradient")
    assert_close(reading.gradient_energy.sum(0), alone.energy)
    assert_close(torch.tensor(reading.gradient_depth), torch.tensor(alone.mean_depth))
    depths = alone.sample_depths
    assert_close(torch.tensor(reading.gradient_depth_error), depths.std() / len(depths) ** 0.5)
    facts = dict(paths_section(reading).facts)
    assert facts["mean depth of the gradient"].startswith(f"{alone.mean_depth:.3f} ± ")
    assert "gradient" in [mark.name for mark in figures_of(reading)[0].marks]


def test_a_gradient_that_was_not_asked_for_has_no_depth():
    reading = path_spectrum(subject().model, subject().batch.inputs)
    assert math.isnan(reading.gradient_depth) and math.isnan(reading.gradient_depth_error)
    assert "mean depth of the gradient" not in dict(paths_section(reading).facts)


def test_a_gradient_without_a_spectrum_is_told(monkeypatch):
    def refused(*arguments, **options):
        raise SkiplensError("no such thing.")

    monkeypatch.setattr("skiplens.paths.report.measure", refused)
    reading = PathsLens()(subject(), Randomness(0), silent)
    assert reading.notes[-1] == "The gradient has no spectrum here: no such thing." and len(reading.energy) == 3


def test_a_costly_model_is_followed_with_one_sample_and_without_signs(monkeypatch):
    monkeypatch.setattr("skiplens.graph.lens.operations_of", lambda model, batch: OPERATIONS / 5)
    reading = PathsLens()(subject(), Randomness(0), silent)
    assert len(reading.sample_energy) == 1 and not len(reading.incoherent) and len(reading.energy) == 3
    assert "1 instead of 6 samples" in reading.notes[0] and "incoherent energies were left out" in reading.notes[1]
