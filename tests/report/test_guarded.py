"""No report for the networks that need one: what fails is told, and the rest is on the page."""

import json
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.edits.remedies import Remedy
from skiplens.plots.section import ReadingView
from skiplens.readings.finding import Finding, Rule
from skiplens.report import lenses
from skiplens.signal.reading import SignalReading
from tests.lens_cases import subject
from tests.report.test_huge_signal import WIDTH, residual

X, Y = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float32), torch.arange(8) % 3


def broken(*readings):
    raise ZeroDivisionError("float division by zero")


@pytest.fixture
def looked_at():
    return subject()


def changed_view(monkeypatch, **changes):
    """The view of the signal, in which something breaks."""
    view: ReadingView = replace(lenses.VIEWS[SignalReading], **changes)
    monkeypatch.setitem(lenses.VIEWS, SignalReading, view)


def test_a_rule_that_fails_is_told_and_the_others_are_heard(monkeypatch, looked_at, tmp_path):
    monkeypatch.setattr(lenses, "RULES", (Rule("broken", (SignalReading,), broken), *lenses.RULES))
    report = sl.inspect(looked_at.model, looked_at.batch, lenses=["task"])
    expected = lenses.find(report.readings, lambda rule, error: None)
    assert report.findings == expected and [problem.lens for problem in report.problems] == ["rule broken"]
    assert "ZeroDivisionError: float division by zero." in report.problems[0].message
    assert report.write(tmp_path).is_file() and "Healthy." not in report.verdict


@pytest.mark.parametrize("part", ["section", "figures"])
def test_a_section_or_figure_that_fails_does_not_cost_the_page(monkeypatch, looked_at, tmp_path, part):
    changed_view(monkeypatch, **{part: broken if part == "section" else (broken,)})
    report = sl.inspect(looked_at.model, looked_at.batch, lenses=["task"])
    page = report.write(tmp_path).read_text()
    told = "This section could not be written" if part == "section" else "figures of signal"
    assert told in page and "float division by zero" in page
    assert len(sl.Report.load(tmp_path).readings) == len(report.readings)


def test_numbers_and_curves_that_fail_do_not_cost_a_comparison(monkeypatch, looked_at, tmp_path):
    overlay = replace(lenses.VIEWS[SignalReading].overlays[0], curve=broken)
    changed_view(monkeypatch, key_numbers=broken, section=broken, overlays=(overlay,))
    models = {"one": looked_at.model, "two": subject(training=True).model}
    comparison = sl.compare(models, looked_at.batch, lenses=["task"])
    assert comparison.write(tmp_path).is_file()
    assert any(
        "Its numbers could not be compared: ZeroDivisionError" in problem.message for problem in comparison.problems
    )


def test_a_change_by_an_infinite_factor_is_no_change():
    finding = Finding(
        "rule", "note", "Sentence.", 1.0, 1.0, "source", "change", remedy=Remedy("x", {"factor": math.inf})
    )
    assert Finding.from_json(json.loads(json.dumps(finding.to_json(), allow_nan=False))).remedy is None


def zero_head(net):
    for parameter in net[-1].parameters():
        nn.init.zeros_(parameter)


def one_nan(net):
    net[1].first.weight.data[0, 0] = math.nan


AWKWARD = {
    "zero last layer": (zero_head, X),
    "one NaN": (one_nan, X),
    "weights x 1e15": (lambda net: [parameter.data.mul_(1e15) for parameter in net.parameters()], X),
    "head x 1e25": (lambda net: net[-1].weight.data.mul_(1e25), X),
    "inputs x 1e20": (lambda net: None, X * 1e20),
    "inputs x 1e30": (lambda net: None, X * 1e30),
}


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("lenses", [("paths", "tangent", "task"), pytest.param((), marks=pytest.mark.slow)])
def test_networks_that_need_a_report_get_one(name, lenses, tmp_path):
    change, inputs = AWKWARD[name]
    net, healthy = residual(2, 1.0), residual(2, 1.0)
    change(net)
    report = sl.inspect(net, (inputs, Y), lenses=lenses)
    assert not [problem for problem in report.problems if "should have foreseen" in problem.message]
    assert report.write(tmp_path / "one").is_file()
    assert sl.Report.load(tmp_path / "one").verdict == report.verdict
    if not lenses:
        comparison = sl.compare({"healthy": healthy, "other": net}, (inputs, Y))
        assert comparison.write(tmp_path / "two").is_file()
        assert not [problem for problem in comparison.problems if "should have foreseen" in problem.message]


@pytest.mark.slow
def test_autocast_is_off_while_measuring():
    net = residual(2, 1.0)  # in float32: doubles are left alone
    chosen = ("forecast", "task", "paths", "curvature", "jacobians", "tangent")
    expected = sl.inspect(net, (X, Y), lenses=chosen)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = sl.inspect(net, (X, Y), lenses=chosen)
        assert torch.is_autocast_enabled("cpu")
    kinds = [reading.kind for reading in expected.readings]
    assert kinds == [reading.kind for reading in found.readings]
    assert len([kind for kind in kinds if kind != "best_change"]) == 9  # that one comes where something is wrong
    for one, other in zip(expected.readings, found.readings, strict=True):
        for field, value in one.values().items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value.nan_to_num(), getattr(other, field).nan_to_num()), (one.kind, field)


class Told(nn.Module):
    """A residual block that does something which torch, or it itself, refuses to differentiate."""

    def __init__(self, rule):
        super().__init__()
        self.f, self.rule = nn.Linear(WIDTH, WIDTH).float(), rule

    def forward(self, x):
        return x + self.rule(self.f(x))


def overwritten(y):
    z = y.exp()
    z[:, 0] = 0
    return z


def only_looked_at(y):
    assert not y.requires_grad, "this model is not made to be trained"
    return y


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (overwritten, "In this mode the model writes in place over a value"),
        (
            only_looked_at,
            "The model itself ended in an error when it was called for this; it said Assertion",
        ),
    ],
)
def test_what_a_model_refuses_is_told_as_that_with_its_traceback(rule, said, tmp_path):
    report = sl.inspect(Told(rule), (X, Y), lenses=["curvature"])
    told = {problem.lens: problem for problem in report.problems}
    assert told["curvature"].message.startswith(said) and told["curvature"].traceback.startswith("Traceback")
    assert report.reading(SignalReading) is not None
    report.write(tmp_path)
    assert sl.Report.load(tmp_path).problems == report.problems


def test_a_signal_that_underflows_is_told():
    model = nn.Sequential(*(Told(lambda y: y) for _ in range(3)), nn.Linear(WIDTH, 3).float())
    reading = sl.inspect(model, (X, Y), lenses=["task"]).reading(SignalReading)
    nothing = replace(reading, signal=torch.cat([reading.signal[:-1], torch.zeros_like(reading.signal[-1:])]))
    assert "the signal vanishes" in lenses.section_of(nothing).sentence
