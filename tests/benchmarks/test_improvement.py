"""The benchmark of improvements: its words about rows, and that a row is one race."""

import pytest
import torch

from benchmarks.improvement import run
from benchmarks.improvement.run import DEVELOPED_ON, improved, summary
from benchmarks.trainability.networks import NETWORKS
from benchmarks.trainability.tasks import Task


def row(faulty, before, after):
    return {"faulty": faulty, "before": before, "after": after}


def test_the_summary_counts_halves_and_losses():
    rows = [
        row(1, "2.0", "0.9"),
        row(1, "2.0", "1.9"),
        row(1, "inf", "0.5"),
        row(0, "0.1", "0.11"),
        row(0, "0.1", "0.1"),
    ]
    lines = list(summary(rows))
    assert lines[0] == "3 faulty: 2 end at half or less, 0 above 1.05 times"
    assert lines[2] == "2 healthy: 0 end at half or less, 1 above 1.05 times"


def test_families_are_kept_apart():
    assert set(DEVELOPED_ON) < {network.family for network in NETWORKS.values()}


@pytest.mark.slow
def test_a_row_is_a_race(monkeypatch):
    torch.set_default_dtype(torch.float32)  # as in the benchmark; the fixture of all tests puts it back
    inputs = torch.randn(256, 14 * 14, generator=torch.Generator().manual_seed(0))
    work = Task("digits", inputs, inputs[:, :10].argmax(1), 10)
    monkeypatch.setattr(run, "task", lambda name: work)
    found = improved(("dense_mlp(4, relu, 1.41)", "outputs", 80, "cpu"))
    assert found["family"] == "dense mlp" and float(found["before"]) > 0 and int(found["cost"]) > 100
