"""What every lens promises, tested on each of them."""

import dataclasses
import functools
import io

import pytest
import torch

from skiplens.base.progress import silent
from skiplens.base.randomness import Randomness
from skiplens.plots.plotly_json import plotly_json
from skiplens.readings.file import read_file, to_json, write_file
from skiplens.report.lenses import figures_of, section_of
from tests.lens_cases import CASES, subject

each_lens = pytest.mark.parametrize("lens", CASES, ids=lambda lens: lens.name)


def fingerprint(model: torch.nn.Module) -> bytes:
    """Everything of the model and of the random state, bit for bit."""
    file = io.BytesIO()
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    flags = [p.requires_grad for p in model.parameters()] + [m.training for m in model.modules()]
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules()]
    torch.save([model.state_dict(), gradients, flags, hooks, torch.get_rng_state()], file)
    return file.getvalue()


@each_lens
@pytest.mark.parametrize("training", [False, True])
def test_looking_changes_nothing(lens, training):
    looked_at = subject(training)
    looked_at.model(looked_at.batch.inputs).sum().backward()
    before = fingerprint(looked_at.model)
    lens()(looked_at, Randomness(0), silent)
    assert fingerprint(looked_at.model) == before


@each_lens
def test_nothing_changes_when_looking_is_interrupted(lens):
    looked_at = subject(training=True)
    before = fingerprint(looked_at.model)

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lens()(looked_at, Randomness(0), stop)
    assert fingerprint(looked_at.model) == before


@functools.cache
def taken(lens):
    """A reading of each lens, shared by the tests that only look at it."""
    return lens()(subject(), Randomness(7), silent)


@each_lens
def test_the_reading_is_frozen_and_survives_its_file(lens, tmp_path):
    reading = taken(lens)
    with pytest.raises(dataclasses.FrozenInstanceError):
        reading.provenance = None
    write_file(tmp_path / "reading.npz", reading)
    assert to_json(read_file(tmp_path / "reading.npz")) == to_json(reading)


@each_lens
def test_same_seed_same_numbers(lens):
    again = lens()(subject(), Randomness(7), silent)
    assert to_json(again)["values"] == to_json(taken(lens))["values"]


@each_lens
def test_provenance_names_lens_seed_and_device(lens):
    origin = taken(lens).provenance
    assert origin.settings["lens"] == lens.name and origin.seed == 7 and origin.device == "cpu"


@each_lens
def test_the_reading_has_a_section_and_its_figures_can_be_drawn(lens):
    reading = taken(lens)
    section = section_of(reading)
    assert section.sentence.endswith(".") and section.facts
    for figure in figures_of(reading):
        assert figure.caption.endswith(".") and plotly_json(figure)["data"]


@each_lens
def test_the_lens_says_what_it_answers(lens):
    assert lens.question.endswith("?")


def test_the_fingerprint_would_notice():
    model = subject(training=True).model
    before = fingerprint(model)
    model(torch.randn(6, 4))
    assert fingerprint(model) != before
