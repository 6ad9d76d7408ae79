"""How forecasts are judged: hand-made numbers, scipy and loops over pairs; the table from a few runs; resuming."""

import math
import sys
import types
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.stats
import torch
from torch import nn

from benchmarks.trainability import judging, measure, table
from benchmarks.trainability.networks import Network
from benchmarks.trainability.tasks import BATCH, Task
from benchmarks.trainability.train import build
from skiplens import forecast


@dataclass(frozen=True)
class Run:
    network: str
    family: str
    task: str
    optimizer: str
    seed: int
    rate: float
    curve: tuple[float, ...]


def test_ranks_and_their_correlation_are_those_of_scipy():
    draws = np.random.default_rng(0).integers(0, 6, (2, 40)).astype(float)
    draws[0, 0], draws[1, 3] = -math.inf, math.inf
    assert judging.ranks(draws[0]) == pytest.approx(scipy.stats.rankdata(draws[0]))
    wanted = scipy.stats.spearmanr(*(scipy.stats.rankdata(row) for row in draws)).statistic
    assert judging.spearman(*draws) == pytest.approx(wanted)
    assert math.isnan(judging.spearman([1, 1], [1, 2])) and math.isnan(judging.spearman([], []))
    with pytest.raises(ValueError, match="not a number has no rank"):
        judging.ranks([1.0, math.nan])


def test_area_is_the_chance_of_the_right_order():
    generator = np.random.default_rng(0)
    scores, positive = generator.integers(0, 5, 30), generator.random(30) < 0.4
    pairs = [(a > b) + (a == b) / 2 for a in scores[positive] for b in scores[~positive]]
    assert judging.roc_area(scores, positive) == pytest.approx(np.mean(pairs))
    assert math.isnan(judging.roc_area([1, 2], [True, True]))


def test_precision_recall_and_coverage_by_hand():
    assert judging.precision_recall([1, 1, 1, 0, 0], [1, 0, 0, 1, 0]) == (1 / 3, 1 / 2)
    assert all(map(math.isnan, judging.precision_recall([0, 0], [0, 0])))
    assert judging.coverage([0, 0, 0, math.nan], [1, 1, 1, math.nan], [0.5, 1.0, 1.1, 0.5]) == 0.5


def test_loss_between_rates_is_geometric():
    rates, losses = (0.01, 0.1, 1.0, 10.0), (4.0, 1.0, 2.0, math.inf)
    assert judging.loss_at_rate(0.1, rates, losses) == pytest.approx(1)
    assert judging.loss_at_rate(math.sqrt(0.001), rates, losses) == pytest.approx(2)
    assert judging.loss_at_rate(10**-0.25, rates, losses) == pytest.approx(2**0.75)
    assert judging.loss_at_rate(1e-6, rates, losses) == pytest.approx(4)
    assert judging.loss_at_rate(1.0, rates, losses) == pytest.approx(2)
    assert judging.loss_at_rate(1.0000000001, rates, losses) == pytest.approx(2)
    assert [judging.loss_at_rate(r, rates, losses) for r in (3.0, 10.0, 99.0, math.nan)] == [math.inf] * 4
    assert judging.loss_at_rate(0.05, rates, (math.inf, 1.0, 2.0, 4.0)) == math.inf


GUESS = 2.0
ENDS = {"good": 0.1, "fair": 0.4, "bad": 1.0, "lost": 1.9}  # above 0.5 is bad


def _runs(optimizers=("sgd", "adam")):
    """Each network at three rates, the middle one is best; seed 1 ends 0.02 higher; the largest rate diverges."""
    for optimizer in optimizers:
        for network, end in ENDS.items():
            for seed in (0, 1):
                for rate, factor in ((0.1, 1.0), (1.0, math.nan), (0.01, 2.0)):
                    last = factor * (end + 0.02 * seed)
                    curve = (2.0,) * 36 + (last - 0.01, last + 0.01) * 2
                    yield Run(network, "family", "digits", optimizer, seed, rate, curve)


def _row(network, optimizer="sgd", seed=0, **values):
    empty = {"method": "ours", "word": "", **dict.fromkeys(("score", "loss", "low", "high", "rate", "cost"), math.nan)}
    return {**empty, "network": network, "optimizer": optimizer, "seed": seed, **values}


@pytest.fixture
def truths():
    return table.truths_of(_runs(), {"digits": GUESS})


def test_the_truth_is_the_mean_of_the_last_forty_steps(truths):
    found = truths["fair", "sgd", 1]
    assert found.rates == (0.01, 0.1, 1.0)
    assert found.losses == pytest.approx((0.84, 0.42, math.inf)) and found.best == pytest.approx(0.42)


def test_a_method_is_judged_by_hand(truths):
    said = {
        "good": _row("good", score=-0.2, word="trains", low=0.05, high=0.2, rate=0.1, cost=70),
        "fair": _row("fair", score=-0.1, word="slow", low=0.1, high=0.2, rate=0.05, cost=72),
        "bad": _row("bad", score=-1.0, word="slow", low=0.9, high=1.0, rate=0.01, cost=71),
        "lost": _row("lost", score=math.nan, word="failed: ValueError", rate=math.nan),
    }
    rows = table.by_start(said.values(), truths)
    found = table.judged(rows, truths, ("sgd",))
    # Scores order them fair, good, bad, lost: ranks differ by 1, 1, 0, 0, so 1 − 6 · 2 / (4 · 15).
    assert found["digits"] == found["mean"] == pytest.approx(0.8)
    assert math.isnan(found["text"]) and found["area"] == 1
    assert (found["precision"], found["recall"]) == (1 / 2, 1 / 2)
    # At the rates that were advised good ends at 0.1, fair at 0.4 · 2^0.3, bad at 2: only the first is inside.
    assert found["coverage"] == 1 / 4
    # 0.05 is 0.7 of the way from 0.01 to 0.1: 0.4 · 2^0.3 is within 1.5 times; 0.01 is twice; no advice is wrong.
    assert found["rate"] == 2 / 4
    assert (found["cost"], found["networks"], found["failed"]) == (71, 4, 1)


def test_a_score_that_knows_no_optimizer_counts_for_both_and_seeds_are_averaged(truths):
    scores = {"good": (0, 2), "fair": (4, -3), "bad": (0, 0), "lost": (-1, -1)}
    rows = [_row(n, "any", seed, score=float(s[seed])) for n, s in scores.items() for seed in (0, 1)]
    said = table.by_start(rows, truths)
    assert len(said) == 16
    assert table.judged(said, truths, ("sgd", "adam"))["digits"] == pytest.approx(1.0)  # means 1, 0.5, 0, -1


def test_the_table_has_a_line_for_each_method_and_says_what_failed(truths):
    rows = [_row(name, score=-end, cost=3.3) for name, end in ENDS.items()]
    rows += [_row("good", method="other", word="failed: ValueError: no"), _row("unknown", method="third")]
    text = table.make_table(rows, truths, ("sgd",))
    assert "| ours | 1.00 | – | – | 1.00 | 1.00 | – | – | – | – | 3 | 4 |" in text.splitlines()
    assert "other failed on 1 starts." in text and "third" not in text


def test_the_table_is_printed_from_what_is_stored(tmp_path, monkeypatch, capsys):
    stored = types.ModuleType("truth")
    stored.load = lambda: list(_runs())
    monkeypatch.setitem(sys.modules, "benchmarks.trainability.truth", stored)
    monkeypatch.setattr("benchmarks.trainability.truth", stored, raising=False)
    stored.guesses = lambda: {"digits": math.log(2), "another task": 1.0}
    file = tmp_path / "methods.csv"
    monkeypatch.setattr("sys.argv", ["table", "--stored", str(file), "--forecasts", str(tmp_path / "forecasts.csv")])
    with pytest.raises(SystemExit, match="has no rows"):
        table.main()
    lines = [f"{method},{name},any,0,{-end},,,,,,1" for method in ("SNIP", "parameters") for name, end in ENDS.items()]
    file.write_text("\n".join([",".join(measure.COLUMNS), *lines]) + "\n")
    table.main()
    printed = capsys.readouterr().out
    assert [title in printed for title in ("SGD with momentum", "Adam", "Both")] == [True] * 3
    # A quarter of ln 2 is between good and fair, so that the area is 1; parameters come first in the list of methods.
    assert printed.count("| SNIP | 1.00 | – | – | 1.00 | 1.00 |") == 3
    assert printed.index("| parameters |") < printed.index("| SNIP |")


@pytest.fixture
def toy(monkeypatch):
    """A task and a network in the place of the real ones."""
    work = Task("digits", torch.randn(BATCH, 3), torch.randint(0, 2, (BATCH,)), 2)
    network = Network("toy", "family", "digits", lambda: nn.Linear(3, 2))
    monkeypatch.setattr(measure, "task", lambda name: work)
    monkeypatch.setattr(measure, "NETWORKS", {"toy": network})
    return network


def test_methods_are_measured_once_and_stored(toy, tmp_path, monkeypatch, capsys):
    file = tmp_path / "results" / "methods.csv"
    asked = ["measure", "--methods", "SNIP", "halving, 20 ", "--tasks", "digits", "--stored", str(file)]
    monkeypatch.setattr("sys.argv", asked)
    measure.main()
    rows = measure.load(file)
    keys = {(row["method"], row["optimizer"], row["seed"]) for row in rows}
    assert keys == {("SNIP", "any", 0), ("SNIP", "any", 1)} | {
        ("halving, 20 steps", optimizer, seed) for optimizer in ("sgd", "adam") for seed in (0, 1)
    }
    assert all(math.isfinite(row["score"]) and math.isnan(row["low"]) for row in rows)
    assert {row["cost"] for row in rows if row["method"] == "SNIP"} == {1.0}
    stored = file.read_text()
    capsys.readouterr()
    measure.main()
    assert file.read_text() == stored and capsys.readouterr().out == ""


def test_a_method_that_ends_in_an_error_is_a_row(toy, monkeypatch):
    def broken(*_):
        raise RuntimeError("no\nluck")

    monkeypatch.setitem(measure.GRID_SEARCHES, "halving, 20 steps", broken)
    job = measure.Job("toy", "sgd", 0, ("halving, 20 steps", "halving, 70 steps"))
    first, second = measure.measured(job)
    assert (first["word"], first["score"]) == ("failed: RuntimeError: no luck", "")
    assert second["word"] == "" and float(second["score"]) < 0


def test_a_forecast_is_stored_with_a_score_of_which_more_is_better(toy):
    (row,) = measure.measured(measure.Job("toy", "adam", 0, ("forecast, 20 steps",)))
    model, work = build(toy, 0), measure.task("digits")
    data = work.inputs, work.targets
    told = forecast(model, data, loss="cross_entropy", optimizer="adam", cost=20, seed=measure.OTHER_BATCHES)
    wanted = (told.word, -told.score, told.loss, *told.interval, told.rate, told.cost)
    found = [row[name] for name in ("word", "score", "loss", "low", "high", "rate", "cost")]
    assert found[0] == wanted[0] and [float(value) for value in found[1:]] == pytest.approx(wanted[1:], rel=1e-6)


def test_what_failed_is_tried_again(toy, tmp_path, monkeypatch):
    file = tmp_path / "methods.csv"
    rows = [["SNIP", "toy", "any", seed, "", word, *[""] * 5] for seed, word in ((0, "failed: ValueError"), (1, ""))]
    file.write_text("\n".join(",".join(map(str, row)) for row in [measure.COLUMNS, *rows]) + "\n")
    monkeypatch.setattr("sys.argv", ["measure", "--methods", "SNIP", "--tasks", "digits", "--stored", str(file)])
    measure.main()
    rows = measure.load(file)
    found = {row["seed"]: row["score"] for row in rows}
    assert len(rows) == 2
    assert math.isfinite(found[0]) and math.isnan(found[1])  # what was stored stays


def test_an_unknown_method_is_named(toy, monkeypatch):
    monkeypatch.setattr("sys.argv", ["measure", "--methods", "oracle"])
    with pytest.raises(SystemExit, match=r"No method is called oracle\. There are: forecast, 0 steps"):
        measure.main()
