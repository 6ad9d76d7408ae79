"""Rows: what is compared, when a target counts as reached, and that an interrupted run goes on."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LIMITS = {"float32_operations_per_s": 1e9, "float64_operations_per_s": 5e8, "bytes_per_s": 1e9}


def squares(samples, wrong=0.0, calls=1):
    """A way: the squares of the first numbers."""
    return lambda: np.arange(1, samples + 1) ** 2 + wrong


@pytest.fixture
def row():
    from rows import Floor, Row, Target
    from ways import Way

    def make(**changes):
        ours = Way(__name__, "squares")
        common = {"name": "squares", "work": "squares", "ours": ours, "sizes": (2, 4, 8), "quick": (2, 4, 8)}
        peers = {"twin": Way(__name__, "squares")}
        targets = (Target("≥ 0 ×", "twin", least=0.0), Target("within 1 TiB", of="bytes", most=2**40))
        return Row(**{**common, "peers": peers, "targets": targets, "floor": lambda n: Floor(n, 8 * n), **changes})

    return make


@pytest.mark.slow
def test_a_row_tells_times_floor_growth_and_targets(row):
    from rows import record

    found = record(row(), LIMITS, quick=True)
    assert found["size"] == 8 and found["growth"]["sizes"] == [2, 4, 8]
    assert found["floor"]["seconds"] == pytest.approx(64 / 1e9)  # bytes, not operations, are the bound
    assert found["floor"]["share"] == pytest.approx(found["floor"]["seconds"] / found["ours"]["cpu_s"])
    assert [target["reached"] for target in found["targets"]] == [True, True]
    assert found["peers"][0]["deviation"] == 0
    assert "held_back" not in found


@pytest.mark.slow
def test_numbers_that_differ_end_the_run(row):
    from rows import record
    from ways import Way

    wrong = {"twin": Way(__name__, "squares", {"wrong": 1.0})}
    with pytest.raises(SystemExit, match=r"squares: twin deviates by 0\.015; its time would mean nothing"):
        record(row(peers=wrong), LIMITS, quick=True)


@pytest.mark.slow
def test_ours_and_the_others_are_compared_with_exact_numbers(row):
    from rows import record
    from ways import Way

    ours, peers = Way(__name__, "squares", {"wrong": 0.5}), {"twin": Way(__name__, "squares", {"wrong": -0.25})}
    common = {"ours": ours, "peers": peers, "exact": Way(__name__, "squares")}
    found = record(row(**common, tolerance=0.01), LIMITS, quick=True)
    assert found["ours"]["deviation"] == pytest.approx(0.5 / 64.5)
    assert found["peers"][0]["deviation"] == pytest.approx(0.25 / 63.75)
    with pytest.raises(SystemExit, match=r"squares: Skiplens deviates by 0\.0078; its time would mean nothing"):
        record(row(**common, tolerance=0.005), LIMITS, quick=True)


def test_no_sign_of_a_relu_is_decided_by_rounding():
    from hessian_network import inputs_of_relus, resnet20

    torch.set_default_dtype(torch.float32)
    model, images, _ = resnet20(4)
    exact, double, _ = resnet20(4, dtype=torch.float64)
    assert torch.equal(images.double(), double)
    for ours, theirs in zip(inputs_of_relus(model, images), inputs_of_relus(exact, double), strict=True):
        rounding = (ours - theirs).square().mean().sqrt()
        assert theirs.abs().min() > 4 * rounding > 0


@pytest.mark.slow
def test_a_missed_target_tells_what_holds_it_back(row):
    from rows import Target, record

    target = Target("≥ 10⁹ ×", "twin", least=1e9)
    found = record(row(targets=(target,), held_back="arithmetic"), LIMITS, quick=True)
    assert not found["targets"][0]["reached"] and found["held_back"] == "arithmetic"


@pytest.mark.slow
def test_a_share_of_the_work_is_scaled(row):
    from rows import record
    from ways import Way

    found = record(row(peers={"twin": Way(__name__, "squares", share=0.1)}), LIMITS, quick=True)
    assert found["peers"][0]["extrapolated_by"] == pytest.approx(10)


def test_the_exponent_is_the_slope_of_logarithms():
    from measuring import exponent

    assert exponent([1, 10, 100], [3, 300, 30_000]) == pytest.approx(2)
    assert exponent([1, 10, 100], [3, 0, 1]) is None  # a cost of nothing has no logarithm
    assert exponent([5], [3]) is None


def test_memory_is_that_of_the_action():
    measure = "import numpy as np, measuring; print(*measuring.added_bytes(lambda: np.ones(2**23).sum()))"
    alone = subprocess.run([sys.executable, "-c", measure], cwd=BENCHMARKS, capture_output=True, text=True, check=True)
    result, added = map(float, alone.stdout.split())  # in a process where nothing else gives memory back meanwhile
    assert result == 2**23
    assert math.isnan(added) or 0.9 * 2**26 < added < 2**28  # the kernel counts pages in batches


@pytest.fixture
def session(tmp_path, monkeypatch):
    """A session whose rows are named `good` or `bad`; what it measures is in `measured`."""
    import run

    def record(row, limits, quick):
        session.measured.append(row.name)
        if row.name == "bad":
            raise SystemExit("bad: numbers differ")
        return {"name": row.name, "ours": {"cpu_s": 1.0}, "peers": [], "targets": []}

    monkeypatch.setattr(run, "record", record)
    monkeypatch.setattr(run, "machine_limits", lambda *sizes, **device: LIMITS)
    monkeypatch.setattr(run, "keep", lambda script, found, results, suffix: None)
    session = run.Session(tmp_path, tmp_path / "finished", quick=False)
    session.measured = []
    return session


def test_an_interrupted_run_goes_on(row, session):
    session.measure("script", row(name="good"))
    session.measure("script", row(name="good"))
    assert session.measured == ["good"]
    session.end()
    session.measure("script", row(name="good"))
    assert session.measured == ["good", "good"]  # a finished run starts from the beginning


def test_a_row_that_fails_leaves_the_others_alone(row, session):
    for name in ("bad", "good"):
        session.measure("script", row(name=name))
    with pytest.raises(SystemExit, match="Not measured:\nbad: bad: numbers differ"):
        session.end()
    session.measure("script", row(name="good"))
    assert session.measured == ["bad", "good"]  # what was good is kept for the next try


def test_a_row_takes_the_place_of_the_earlier_one(tmp_path):
    import run

    for cpu in (1.0, 2.0):
        run.keep("densenet_gram", {"name": "densenet-gram", "cpu": cpu}, tmp_path)
    content = json.loads((tmp_path / "densenet_gram.json").read_text())
    assert [row["cpu"] for row in content["rows"]] == [2.0]


def test_a_row_goes_to_a_device_with_the_peers_that_can(row):
    from rows import on_device
    from ways import Way

    there = Way("hessian_product", "skiplens")
    both = row(ours=there, peers={"stays": Way(__name__, "squares"), "goes": Way("hessian_product", "curvlinops")})
    moved = on_device(both, "cuda")
    assert moved.ours.arguments == {"device": "cuda"} and set(moved.peers) == {"goes"}
    assert on_device(row(), "cuda") is None
    assert on_device(row(), "cpu") is not None


def test_an_unknown_name_is_told():
    import run

    with pytest.raises(SystemExit, match=r"No row is called nonsense\. There are: gram-10-float32"):
        run.chosen(["nonsense"])


def test_the_page_is_that_of_the_results():
    import page

    assert page.PAGE.read_text("utf-8") == page.text(), "python benchmarks/page.py writes it"
