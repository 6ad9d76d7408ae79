"""The benchmarks of improvements and designs: their words about rows, and what a row is."""

import pytest
import torch
from torch import nn

from benchmarks.improvement import design, run
from benchmarks.improvement.run import GRID, Job, improved, summary
from benchmarks.improvement.twins import TWINS
from benchmarks.trainability.tasks import Task
from skiplens.trainability.forecast import opened


def row(network, known, before, after, guess="2.0"):
    return {"network": network, "known": known, "before": before, "constant": before, "after": after, "guess": guess}


def test_the_summary_counts_halves_and_losses():
    twin = row("vgg(8)", "0.1", "0.1", "0.11")
    rows = [
        row("vgg(8, normed=False, gain=None)", "2.0", "2.0", "0.9"),
        row("vgg(8, normed=False, gain=3.0)", "inf", "inf", "0.12"),
        row("vgg(8, shift=-3.0, normed=False)", "0.6", "2.0", "1.9"),
        row("vgg(8, probabilities=True)", "0.4", "0.4", "0.4"),  # below a quarter of a guess
        row("gated(1, head=100.0)", "2.0", "2.0", "0.1"),  # its twin is not there yet
    ]
    lines = list(summary([twin, *rows]))
    assert lines[0] == "3 faulty: 2 end at half or less, 0 above 1.05 times"
    assert lines[2] == "  1 end within 1.3 times the loss of the twin, 0 at a constant rate"
    assert lines[3] == "2 healthy: 0 end at half or less, 1 above 1.05 times"
    above = row("vgg(8, normed=False, gain=None)", "0.19", "0.19", "0.19", guess="0.2")  # not twice its twin
    assert next(summary([twin, above])).startswith("2 healthy")


def test_each_network_counts_as_it_was_last_run_beside_the_first_grid():
    first, again = row("vgg(8)", "0.1", "0.1", "0.1"), row("vgg(8)", "0.3", "0.3", "0.05")
    del first["constant"]  # tables from before there was a falling rate
    (only,) = run.last_runs([[first]])
    assert only["constant"] == "0.1"
    assert run.last_runs([[first], [again]]) == [again | {"known": "0.1"}]


def test_every_faulty_network_has_its_twin_and_can_be_trained():
    torch.set_default_dtype(torch.float32)
    assert all(network.healthy.name in TWINS for network in TWINS.values())
    assert sum(bool(network.fault) for network in TWINS.values()) >= 40 <= 2 * sum(not t.fault for t in TWINS.values())
    given = {"digits": torch.randn(2, 196), "cifar10": torch.randn(2, 3, 32, 32), "text": torch.zeros(2, 32).long()}
    for network in TWINS.values():
        inputs = given[network.task]
        scores = network.build(0)(inputs)
        shape = (2, 32, 49) if network.task == "text" else (2, 10)
        assert scores.shape == shape and scores.isfinite().all(), network.name
        assert torch.equal(scores, network.build(0)(inputs)) or "tabular" in network.name  # which has dropout


@pytest.mark.slow
def test_a_row_is_a_race(monkeypatch):
    torch.set_default_dtype(torch.float32)  # as in the benchmark; the fixture of all tests puts it back
    inputs = torch.randn(256, 14 * 14, generator=torch.Generator().manual_seed(0))
    work = Task("digits", inputs, inputs[:, :10].argmax(1), 10)
    monkeypatch.setattr(run, "task", lambda name: work)
    found = improved(Job(TWINS["highway(4)"], "outputs", 80, "cpu"))
    assert found["family"] == "highway" and float(found["before"]) > 0 and int(found["cost"]) > 100
    rates = [train_at(work, rate) for rate in GRID]
    assert float(found["known"]) == pytest.approx(min(rates), rel=1e-4)


def train_at(work, rate):
    """As `opened` orders the batches with this seed; the loss is the mean over the last tenth."""
    model, losses = TWINS["highway(4)"].build(0), []
    batches = opened((work.inputs, work.targets), 80, 0, torch.device("cpu"))[0].batches(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(80):
        batch = next(batches)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch.inputs), batch.targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-8:]) / 8


def ends(network, losses, depth=200, rate="0.1"):
    case = {"family": "mlp", "task": "digits", "depth": depth, "network": network, "rate": rate, "guess": "2"}
    return [case | {"loss": loss, "seed": str(seed), "choices": network} for seed, loss in enumerate(losses)]


def test_designs_are_judged_at_the_rate_that_is_best_over_seeds():
    rows = [*ends("designed", ["0.1", "0.4"]), *ends("designed", ["0.01", "inf"], rate="0.2")]
    rows += [*ends("usual", ["0.3", "0.3"]), *ends("usual with shortcuts", ["0.25", "0.25"])]
    *_, last = lines = list(design.summary(rows))
    assert lines[0] == "mlp on digits, depth 200: designed 0.2, usual 0.3, usual with shortcuts 0.25"
    assert last == "1 cases: as good as the better usual one in 1; of 1 at depth 200 better in 1"
    *_, last = design.summary([*rows, *ends("usual", ["0.1", "0.1"], rate="0.2")])
    assert last == "1 cases: as good as the better usual one in 0; of 1 at depth 200 better in 0"
    small = [row for name in design.NETWORKS for row in ends(name, ["0.002" if name == "usual" else "0.01"], 50)]
    *_, last = design.summary(small)
    assert last.startswith("1 cases: as good as the better usual one in 1; of 0")
    *_, last = design.summary(rows[:-2])
    assert last.startswith("0 cases"), "what is not trained yet is not judged"
    first, *_ = design.summary(rows[:-1])
    assert first.endswith("designed 0.01, usual 0.3, usual with shortcuts 0.25"), "over the seeds that all have"


def test_a_design_that_is_the_usual_network_is_as_good_as_that():
    rows = [*ends("designed", ["0.4"], 50), *ends("usual", ["0.9"], 50), *ends("usual with shortcuts", ["0.3"], 50)]
    *_, last = design.summary(rows)
    assert last.startswith("1 cases: as good as the better usual one in 0")
    rows[0]["choices"] = "usual with shortcuts"
    first, last = design.summary(rows)
    assert first.endswith("(the design is the same network: usual with shortcuts)") and "one in 1;" in last
    rows[0]["choices"] = "usual"
    *_, last = design.summary(rows)
    assert "one in 0;" in last, "not the better one"


def test_the_usual_network_is_trained_as_anybody_would(monkeypatch):
    torch.set_default_dtype(torch.float32)
    inputs = torch.randn(256, 12, generator=torch.Generator().manual_seed(0))
    work = Task("digits", inputs, inputs[:, :3].argmax(1), 3)
    monkeypatch.setattr(design, "task", lambda name: work)
    job = design.Job("mlp", "digits", 4, "usual", 1, steps=45)
    rows = design.trained(job)
    assert [row["rate"] for row in rows] == [f"{rate:.4g}" for rate in design.GRID] and rows[0]["seed"] == "1"
    model, losses, batches = design.plan_of(job, work).build(1), [], work.batches(1)
    assert [type(part) for part in model][1:4] == [nn.BatchNorm1d, nn.ReLU, nn.Linear]
    optimizer = torch.optim.Adam(model.parameters(), lr=design.GRID[2])
    for _ in range(45):
        X, y = next(batches)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(X), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert float(rows[2]["loss"]) == pytest.approx(sum(losses[5:]) / 40, rel=1e-4)  # five digits are stored
