"""The change under the verdict: a finding asks for it, it was tried where that is said, looking changes nothing."""

import copy
import math
from dataclasses import replace

import pytest
import torch

import skiplens as sl
from skiplens.edits.remedies import apply_remedy, code_of, words_of
from skiplens.graph.batch import tensors_in
from skiplens.graph.lens import prepared
from skiplens.improvement.best_change import TRIES, BestChange, best_change
from skiplens.improvement.search import WORTH
from skiplens.readings.finding import Remedy
from skiplens.report import Report
from tests.improvement.test_improve import data, network

LENSES = ["forecast", "task"]


@pytest.fixture(scope="module")
def faulty():
    return network(10, 0.4)


@pytest.fixture(scope="module")
def told():
    """What the progress of the report said."""
    return []


@pytest.fixture(scope="module")
def report(faulty, told):
    kept = copy.deepcopy(faulty.state_dict())
    state, mode = torch.get_rng_state(), faulty.training
    found = sl.inspect(faulty, data(), lenses=LENSES, progress=lambda label, done, total: told.append(label))
    assert (
        all(torch.equal(kept[name], value) for name, value in faulty.state_dict().items()) and faulty.training == mode
    )
    assert torch.equal(state, torch.get_rng_state())
    return found


def test_it_is_what_the_worst_finding_asks_for_and_what_a_forecast_of_the_changed_copy_says(report, faulty):
    found, before = report.reading(BestChange), report.reading(sl.Forecast)
    finding = next(f for f in report.findings if f.remedy is not None)
    seed, cost = before.provenance.seed, before.provenance.settings["cost"]
    after = sl.forecast(apply_remedy(finding.remedy, faulty), data(), seed=seed, cost=cost)
    assert (found.after, found.gradients) == (after.loss, after.cost) and found.fall == before.score - after.score
    assert found.rule == finding.rule and found.code == code_of(finding.remedy)
    assert found.helps and f"{after.loss:.2g} instead of {before.loss:.2g}" in found.promise
    assert f"tried in a pilot of {after.cost} steps" in found.promise


def test_the_progress_speaks_of_one_forecast(report, told):
    """What is expected of the changed network on the way would be read as said of the network that was handed in."""
    assert sum("as far as can be told" in label for label in told) == 1 and told[-1] == "what to change first"


def test_its_code_makes_the_network_that_was_tried(report, faulty):
    pasted = {"model": copy.deepcopy(faulty)}
    exec(report.reading(BestChange).code, pasted)
    tried = apply_remedy(next(f.remedy for f in report.findings if f.remedy is not None), faulty)
    assert torch.equal(pasted["model"](data()[0]), tried(data()[0]))


def test_it_stands_under_the_verdict_once_and_comes_back_from_its_file(report, tmp_path):
    text = report.write(tmp_path).read_text("utf-8")
    assert text.count('<div class="advice">') == 1 and text.index('<div class="verdict') < text.index('"advice"')
    assert "tried in a pilot of" in text.split('<div class="advice">')[1].split("</strong>")[0]
    assert Report.load(tmp_path).advice == report.advice and str(report).splitlines()[1].startswith("What to change")
    assert "best_change" not in [section.anchor for section in report.sections()]


def test_without_the_pilot_it_is_named_and_not_said_to_be_tried(report, faulty, monkeypatch):
    monkeypatch.setattr("skiplens.improvement.best_change.forecast", lambda *given, **named: pytest.fail("a pilot"))
    found = sl.inspect(faulty, data(), lenses=LENSES, pilot=False)
    assert found.reading(BestChange).change == report.reading(BestChange).change
    assert "not known: it was not tried." in found.advice and "pilot" not in found.advice


def test_a_costly_network_is_not_tried(faulty, monkeypatch):
    monkeypatch.setattr("skiplens.improvement.best_change.forecast", lambda *given, **named: pytest.fail("a pilot"))
    monkeypatch.setattr("skiplens.trainability.report.MOST", math.inf)  # such a forecast is refused else
    found = sl.inspect(faulty, data(), lenses=LENSES, minutes=1e-9)
    assert found.reading(sl.Forecast).provenance.settings["cost"] < 70 and "it was not tried" in found.advice


def test_a_healthy_network_and_one_without_a_forecast_get_none(faulty):
    assert sl.inspect(network(1), data(), lenses=LENSES).advice == ""
    assert sl.inspect(faulty, data(), lenses=["task"]).advice == ""


def test_it_is_no_part_of_a_comparison(faulty):
    compared = sl.compare({"one": faulty, "other": network(10, 0.5)}, data(), lenses=["forecast"])
    assert "best_change" not in [section.anchor for section in compared.sections()]


@pytest.fixture
def subject(faulty):
    return prepared(faulty, data(), 64, "faulty")


def test_where_no_finding_names_one_a_bad_forecast_gets_the_first_that_improve_would_try(report, subject):
    before = report.reading(sl.Forecast)
    found = best_change(subject, (), before, tried=False)
    assert found.rule == "standardise_inputs" and "Standardise the inputs" in found.change  # they have size 3
    assert best_change(subject, (), replace(before, word="trains"), tried=False) is None


def test_a_change_that_cannot_be_made_says_why(report, subject):
    impossible = replace(report.findings[0], remedy=Remedy("add_average_pool_skips", {"blocks": ("1",)}))
    found = best_change(subject, [impossible], replace(report.reading(sl.Forecast), word="trains"))
    assert not found.gradients and "What it brings is not known: it cannot be tried here (" in found.promise
    mode = replace(impossible, remedy=Remedy("evaluation_mode"))
    assert best_change(subject, [mode], replace(report.reading(sl.Forecast), word="trains")) is None


def test_where_the_first_promises_nothing_the_next_are_tried(report, subject):
    before = report.reading(sl.Forecast)
    impossible = replace(report.findings[0], remedy=Remedy("add_average_pool_skips", {"blocks": ("1",)}))
    found = best_change(subject, [impossible], before)
    assert found.helps and found.rule == "torch_default"
    assert found.others == ("standardise the inputs as the first layer",)  # what could not be tried is none of them
    same = replace(before, score=before.score - 20.0)  # so good that nothing is better
    found = best_change(subject, report.findings, same)
    assert not found.helps and len(found.others) == TRIES - 1 and len({found.change, *found.others}) == TRIES
    assert found.rule == next(f.rule for f in report.findings if f.remedy is not None)
    assert f"Tried as well, without a clearly lower loss: {found.others[0]}; {found.others[1]}." == found.beside
    assert best_change(subject, report.findings, replace(same, word="trains")).others == ()  # where it trains, one


def test_deep_sigmoids_are_told_what_helps():
    torch.manual_seed(0)
    layers = [part for _ in range(8) for part in (torch.nn.Linear(12, 12), torch.nn.Sigmoid())]
    report = sl.inspect(torch.nn.Sequential(*layers, torch.nn.Linear(12, 3)).float(), data(), lenses=LENSES)
    found = report.reading(BestChange)
    assert found.helps and found.others and "instead of" in report.advice


def test_a_change_that_promises_nothing_is_said_to(report):
    found = replace(report.reading(BestChange), fall=WORTH)
    assert not found.helps and "Alone it promises no clearly lower loss" in found.promise
    assert "instead of one that diverges" in replace(found, before=float("inf")).promise
    assert "the loss it leads to diverges" in replace(found, after=float("inf")).promise
    told = replace(report, readings=(*(r for r in report.readings if not isinstance(r, BestChange)), found))
    assert told.advice.startswith("What was tried first: ") and report.advice.startswith("What to change first: ")


@pytest.mark.parametrize("where", ["weights", "inputs"])
def test_where_something_is_nan_no_change_of_the_network_is_named(report, faulty, where):
    before, (inputs, targets) = report.reading(sl.Forecast), data()
    subject = prepared(copy.deepcopy(faulty), (inputs.clone(), targets), 64, "faulty")
    assert best_change(subject, report.findings, before, tried=False) is not None
    tensors = subject.model.parameters() if where == "weights" else tensors_in(subject.batch.inputs)
    next(iter(tensors)).data.view(-1)[0] = float("nan")
    assert best_change(subject, report.findings, before, tried=False) is None


@pytest.mark.parametrize(
    ("remedy", "words"),
    [
        (Remedy("scale_parameters", {"factors": {"a": 2.0, "b": 2.0}}), "multiply a, b by 2"),
        (Remedy("scale_parameters", {"factors": {"a": 2.0, "b": 0.5}}), "multiply a, b by 0.5 to 2"),
        (
            Remedy("scale_parameters", {"factors": {f"{n}.f.{kind}": 0.5 for n in range(9) for kind in ("w", "b")}}),
            "multiply the 9 layers 0.f to 8.f by 0.5",
        ),
        (Remedy("redraw_parameters", {"drawn": ("a",), "ones": (), "zeros": (), "seed": 0}), "draw a anew at the"),
        (Remedy("add_average_pool_skips", {"blocks": ("1",)}), "replace the shortcuts of 1 by average pools"),
        (Remedy("norms_first"), "norms first"),
    ],
)
def test_remedies_in_words(remedy, words):
    assert words_of(remedy).startswith(words)
