"""Theorem 1: the measures against exact facts, and judges that can say no."""

import math

import pytest
import torch

from skiplens.papers.li2016_shortcuts import thm1
from skiplens.papers.li2016_shortcuts.thm1 import Construction, OneStep, SharedLabels
from tests.papers.li2016_shortcuts.fake_readings import fake, judged


def test_a_construction_meets_its_labels_and_its_bounds(seed):
    found = thm1.construction(Construction(units=250, seed=seed))
    assert float(found["fit_error"]) < 1e-9
    # longest step δ, printed unit: √(8 δ)/ρ
    expected = math.sqrt(8 * float(found["longest_step"])) / float(found["separation"])
    assert float(found["largest_norm"]) == pytest.approx(expected, rel=1e-9)
    assert float(found["longest_path"]) <= float(found["path_bound"])


def test_depths_of_a_replicate_have_the_same_points(seed):
    first, second = (thm1.construction(Construction(units=units, seed=seed)) for units in (130, 260))
    assert torch.equal(first["separation"], second["separation"])
    other = thm1.construction(Construction(units=130, replicate=1, seed=seed))
    assert not torch.equal(first["separation"], other["separation"])


def test_units_are_evaluated_as_printed():
    """One unit by hand: h = (1, 0, 0), W_1 h + b = (1, -1), relu, W_2."""
    W_1, W_2 = torch.zeros(2, 1, 3, 3)
    W_1[0, 0, 0], W_2[0, 1, 0] = 2.0, 0.5
    units = (W_1, torch.full((1, 3), -1.0), W_2)
    assert thm1.run_units(units, torch.tensor([[1.0, 0.0, 0.0]])).tolist() == [[1.0, 0.5, 0.0]]


def test_a_single_step_moves_one_point_only(seed):
    found = thm1.one_step(OneStep(distance=0.3, seed=seed))
    assert float(found["error"]) < 1e-14
    assert float(found["norm_error"]) < 1e-14


def test_shared_labels_have_no_distance(seed):
    found = thm1.shared_labels(SharedLabels(seed=seed))
    assert float(found["separation"]) == 0
    assert 0 < float(found["surrogate_separation"]) < 0.2
    assert float(found["loss"]) <= float(found["loss_bound"])


def constructions(norm_exponent: float = -0.5, step_exponent: float = -1.0, fit: float = 1e-14) -> list:
    return [
        fake(
            "construction",
            {"units": units, "samples": 6, "replicate": replicate},
            largest_norm=5.0 * units**norm_exponent,
            longest_step=9.0 * units**step_exponent,
            separation=0.9,
            fit_error=fit,
        )
        for units in (100, 200, 400)
        for replicate in range(3)
    ]


def test_judges_tell_laws_apart():
    assert judged(thm1.CLAIMS, "norm_law", constructions()).verdict == "reproduced"
    assert judged(thm1.CLAIMS, "norm_law", constructions(norm_exponent=-0.4)).verdict == "differs"
    assert judged(thm1.CLAIMS, "step", constructions()).verdict == "corrected"
    assert judged(thm1.CLAIMS, "step", constructions(step_exponent=0.0)).verdict == "reproduced"
    assert judged(thm1.CLAIMS, "step", constructions(step_exponent=-0.5)).verdict == "differs"
    assert judged(thm1.CLAIMS, "fit", constructions()).verdict == "reproduced"
    assert judged(thm1.CLAIMS, "fit", constructions(fit=0.1)).verdict == "differs"
    assert judged(thm1.CLAIMS, "norm_bound", constructions()).verdict == "reproduced"
    assert judged(thm1.CLAIMS, "norm_bound", constructions(norm_exponent=0.5)).verdict == "differs"
