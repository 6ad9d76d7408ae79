"""Faults of data and loss are found; what is healthy is not."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import skiplens as sl
from skiplens.edits.remedies import apply_remedy
from skiplens.graph.batch import Batch
from skiplens.report.lenses import QUANTITIES
from skiplens.task import TaskReading, measure_task, task_findings
from skiplens.task.report import task_section
from tests.networks import Formula

INPUTS = torch.randn(64, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
LABELS = torch.randint(4, (64,), generator=torch.Generator().manual_seed(3))
PIXELS = 255 * torch.rand(64, 3, 6, 6, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def model(outputs: int = 4, *end: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, outputs), *end).double()


def convolution(*norm: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *norm, nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)).double()


def found(net: nn.Module, inputs=INPUTS, targets=LABELS, loss=None):
    return {finding.rule: finding for finding in task_findings(measure_task(net, Batch(inputs, targets), loss))}


@pytest.mark.parametrize(
    ("net", "inputs", "targets", "loss"),
    [
        (model(), INPUTS, LABELS, None),
        (model(4, nn.LogSoftmax(1)), INPUTS, LABELS, None),
        (model(4, nn.LogSoftmax(1)), INPUTS, LABELS, F.nll_loss),
        (model(), INPUTS.abs(), LABELS, None),
        (convolution(), PIXELS / 255, LABELS, None),
        (convolution(nn.BatchNorm2d(8)), PIXELS, LABELS, None),
        (Formula(lambda m, x: m.f(x / 255), f=convolution()), PIXELS, LABELS, None),
        (nn.Sequential(nn.LayerNorm(8), model()).double(), 300 + INPUTS, LABELS, None),
        (model(1), INPUTS, LABELS.double(), "mse"),
        (model(1), INPUTS, (LABELS > 1).double()[:, None], "binary_cross_entropy"),
        (model(1, nn.Sigmoid()), INPUTS, (LABELS > 1).double()[:, None], nn.BCELoss()),
        (
            nn.Sequential(nn.Embedding(4, 8), model()).double(),
            LABELS[:, None].expand(64, 3) + 0,
            LABELS[:, None].expand(64, 3),
            None,
        ),
        (model(), INPUTS, LABELS, lambda outputs, targets: 100 + outputs.mean()),
        (model(1000), INPUTS, LABELS, None),
        (model(), INPUTS[:1], LABELS[:1], None),
        (model(), INPUTS[:1].repeat(3, 1), LABELS[:1].repeat(3), None),
        (convolution(nn.BatchNorm2d(8)).eval(), PIXELS, LABELS, None),
    ],
)
def test_what_is_healthy_has_nothing_above_a_note(net, inputs, targets, loss):
    assert [rule for rule, finding in found(net, inputs, targets, loss).items() if finding.severity != "note"] == []


def test_outputs_that_are_too_large_and_their_remedy():
    net = model()
    with torch.no_grad():
        net[2].weight.mul_(1000)
    finding = found(net)["loss_at_start"]
    start = F.cross_entropy(net(INPUTS), LABELS).item() / math.log(4)
    assert finding.severity == "warning" and finding.number == pytest.approx(start) and start > 20
    assert set(finding.remedy.parameters["factors"]) == {"2.weight", "2.bias"}
    mended = apply_remedy(finding.remedy, net)
    assert found(mended) == {}
    scores = mended(INPUTS).detach()
    assert (scores - scores.mean(1, keepdim=True)).square().mean().sqrt().item() == pytest.approx(1, rel=1e-2)
    exec(finding.code, {"model": net})
    assert found(net) == {}
    again = measure_task(net, Batch(INPUTS, LABELS))
    assert QUANTITIES["loss_at_start"].measure(finding, again) == again.start


def test_a_moderate_excess_is_a_note_and_squares_have_their_own_threshold():
    net = model()
    with torch.no_grad():
        net[2].weight.mul_(15)
    assert 2 < found(net)["loss_at_start"].number < 20 and found(net)["loss_at_start"].severity == "note"
    one = model(1)
    targets = torch.randn(64, 1, generator=torch.Generator().manual_seed(6))
    with torch.no_grad():
        one[2].weight.mul_(100)
    finding = found(one, targets=targets)["loss_at_start"]
    expected = ((one(INPUTS) - targets).square().mean() / targets.square().mean()).item()
    assert finding.number == pytest.approx(expected) and finding.severity == "warning"
    assert found(apply_remedy(finding.remedy, one), targets=targets) == {}


@pytest.mark.parametrize(
    ("net", "targets", "loss", "least"),
    [
        (model(4, nn.Softmax(1)), LABELS, None, math.log((math.e + 3) / math.e)),
        (
            model(1, nn.Sigmoid()),
            (LABELS > 1).double()[:, None],
            "binary_cross_entropy",
            math.log((math.e + 1) / math.e),
        ),
    ],
)
def test_a_second_softmax_and_the_least_loss_that_it_leaves(net, targets, loss, least):
    finding = found(net, targets=targets, loss=loss)["squashed_outputs"]
    assert finding.severity == "warning" and finding.number == pytest.approx(least)
    names = {"torch": torch}
    exec(finding.code, names)
    assert "squashed_outputs" not in found(net, targets=targets, loss=names["loss"])


def test_a_sigmoid_and_a_relu_before_a_cross_entropy():
    finding = found(model(4, nn.Sigmoid()))["squashed_outputs"]
    assert finding.number == pytest.approx(math.log((math.e + 3) / math.e)) and "ends in a sigmoid" in finding.sentence
    assert "ends in a ReLU" in found(model(4, nn.ReLU()))["cut_scores"].sentence
    targets = torch.rand(64, 4, dtype=torch.float64)
    assert {"cut_scores", "squashed_outputs"}.isdisjoint(found(model(4, nn.ReLU()), targets=targets))  # of numbers


@pytest.mark.parametrize(("rate", "heard"), [(0.79, False), (0.8, True), (0.95, True)])
def test_dropouts_that_leave_next_to_nothing(rate, heard):
    net = nn.Sequential(model(), nn.Dropout(0.5), nn.Dropout(rate))
    findings = found(net)
    assert ("heavy_dropout" in findings) == heard
    if heard:
        finding = findings["heavy_dropout"]
        assert finding.where == ("2",) and finding.number == rate and f"{100 * rate:g} %" in finding.sentence
        names = {"model": net}
        exec(finding.code, names)
        assert names["model"][2].p == pytest.approx(1 - rate) and names["model"][1].p == 0.5 and net[2].p == rate


class Reads(nn.Module):
    """Samples as two times of two features; the last time is read."""

    def __init__(self, batch_first, layer=nn.GRU):
        super().__init__()
        self.layer, self.head = layer(4, 8, batch_first=batch_first).double(), nn.Linear(8, 4).double()

    def forward(self, x):
        return self.head(self.layer(x.view(len(x), 2, -1))[0][:, -1])


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4).double()

    def forward(self, x):
        return self.layer(x + torch.rand_like(x))


@pytest.mark.parametrize(
    ("build", "mixes"),
    [
        (lambda: model(4, nn.Softmax(0)), True),
        (lambda: Reads(batch_first=False), True),  # the first sample is the first time: it alone has its own answer
        (lambda: Reads(batch_first=True), False),
        (lambda: model(4, nn.BatchNorm1d(4)), False),
        (lambda: model(4, nn.BatchNorm1d(4, track_running_stats=False)), False),
        (lambda: model(4, nn.Dropout(0.5)), False),
        (Noisy, False),
        (lambda: Formula(lambda m, x: m.f(x) @ m.f(x).T, f=model()), False),  # scores of all pairs are meant to
    ],
)
def test_samples_that_change_each_others_answers(build, mixes):
    assert ("mixed_samples" in found(build())) == mixes


def test_samples_that_agree_in_what_is_mixed_are_told_apart():
    inputs = INPUTS.clone()
    inputs[:, 4:] = 0  # the time that is read
    assert "mixed_samples" in found(Reads(batch_first=False), inputs=inputs)


def test_scores_where_log_probabilities_are_wanted():
    net = model()
    nn.init.constant_(net[2].bias, -1000)
    findings = found(net, loss=nn.NLLLoss())
    assert list(findings) == ["unbounded_loss"] and findings["unbounded_loss"].severity == "critical"


@pytest.mark.parametrize(
    ("net", "inputs", "threshold"),
    [
        (convolution(), PIXELS, 10),
        (model(), 1e-4 * INPUTS, 1e-3),
        (model(), 1 + 0.02 * INPUTS, 0.99),
        (nn.Linear(8, 4).double(), 300 + INPUTS, 10),
    ],
)
def test_inputs_that_are_not_standardised_and_the_code_that_mends_them(net, inputs, threshold):
    finding = found(net, inputs)["inputs_scale"]
    assert finding.severity == "warning" and finding.threshold == threshold
    names = {"inputs": inputs}
    exec(finding.code, names)
    assert "inputs_scale" not in found(net, names["inputs"])


def test_targets_far_from_zero():
    assert found(model(1), targets=1000 * INPUTS[:, :1])["targets_scale"].threshold == 100
    assert found(model(1), targets=20 + INPUTS[:, :1])["targets_scale"].number == pytest.approx(400 / 401, rel=1e-2)


def test_samples_that_are_all_the_same_and_tokens_too():
    assert found(model(), INPUTS[:1].expand(64, 8))["constant_inputs"].severity == "critical"
    tokens = nn.Sequential(nn.Embedding(9, 8), nn.Flatten(), nn.Linear(24, 4))
    assert list(found(tokens, torch.full((64, 3), 2))) == ["constant_inputs"]


def test_contradictions_warn_from_a_quarter_of_a_guess_on():
    few = torch.cat([INPUTS[:63], INPUTS[:1]])
    labels = torch.where(torch.arange(64) == 63, (LABELS[0] + 1) % 4, LABELS)
    assert found(model(), few, labels)["contradicting_labels"].severity == "note"
    many = torch.cat([INPUTS[:32], INPUTS[:32]])
    findings = found(model(), many, torch.arange(64) // 16)
    assert findings["contradicting_labels"].severity == "warning"
    assert findings["contradicting_labels"].number == pytest.approx(math.log(2) / math.log(4))
    assert findings["duplicated_samples"].number == 0.5
    assert list(found(model(), many, LABELS[:32].repeat(2))) == ["duplicated_samples"]


def test_a_text_may_go_on_in_two_ways():
    net = nn.Sequential(nn.Embedding(4, 8), model()).double()
    context = torch.tensor([[0, 1, 2], [0, 1, 2], [1, 2, 3], [3, 3, 0]])
    assert measure_task(net, Batch(context, context.roll(1, 0))).contradictions == 2
    assert "contradicting_labels" not in found(net, context, context.roll(1, 0))


def test_classes_that_never_occur():
    one = found(model(), targets=LABELS * 0)["missing_classes"]
    assert one.severity == "note" and "all have one class" in one.sentence
    some = found(model(5))["missing_classes"]
    assert some.number == pytest.approx(5 * 0.8**64) and "1 of 5 classes never occur" in some.sentence
    assert "missing_classes" not in found(model(10), INPUTS, LABELS)  # 10 · 0.9⁶⁴ = 0.012 is not rare


def test_shuffled_labels_are_a_note():
    generator = torch.Generator().manual_seed(8)
    labels = torch.randint(4, (300,), generator=generator)
    inputs = torch.eye(8)[labels] + torch.randn(300, 8, generator=generator)
    report = sl.inspect(model(), (inputs, labels), lenses=["task"])
    assert report.reading(TaskReading).seen == 300 and report.reading(TaskReading).samples == 64
    assert "unexplained_labels" not in [finding.rule for finding in report.findings]
    shuffled = labels[torch.randperm(300, generator=generator)]
    (finding,) = sl.inspect(model(), (inputs, shuffled), lenses=["task"]).findings
    assert (finding.rule, finding.severity) == ("unexplained_labels", "note")


def test_outputs_that_are_infinite_have_no_remedy():
    reading = measure_task(model(), Batch(INPUTS, LABELS))
    (finding,) = task_findings(replace(reading, loss=math.inf, output_size=math.inf))
    assert finding.rule == "loss_at_start" and finding.number == math.inf and finding.remedy is None


def test_values_that_are_not_finite_do_not_end_in_an_error():
    broken = torch.where(INPUTS > 2, math.nan, INPUTS)
    reading = measure_task(model(), Batch(broken, LABELS))
    assert math.isnan(reading.loss) and math.isnan(reading.entry_size)
    assert [finding for finding in task_findings(reading) if finding.severity != "note"] == []
    section = task_section(reading)
    assert section.sentence.startswith("The loss starts at not known")
