"""Ten ratios: each has a committed one, and what is slower or larger is seen once it was measured twice."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NAME, PEER = "product", "training step"


def measurement(ours, peer, size=2**30):
    return {"cpu_s": ours, "added_bytes": size}, {"cpu_s": peer, "added_bytes": size}


@pytest.fixture
def results(tmp_path):
    """A file in which one row is committed: ours takes 2 s and 1 GiB, the other way 6 s."""
    ours, peer = measurement(2.0, 6.0)
    (tmp_path / "regress.json").write_text(json.dumps({"rows": {NAME: {"ours": ours, "peer": peer}}}))
    return tmp_path / "regress.json"


def test_there_are_ten_and_each_is_committed_and_can_be_measured_with_torch_alone():
    from regress import PAIRS, SMALLER, committed, size_of
    from run import chosen

    rows, known = {row.name: row for _, row in chosen([])}, committed()
    assert len(PAIRS) == 10 and set(SMALLER) < set(PAIRS) and known.keys() == PAIRS.keys()
    for name, peer in PAIRS.items():
        assert rows[name].peers[peer].environment == "main"
        assert known[name]["peer_name"] == peer and known[name]["size"] == size_of(rows[name])


def test_what_is_recorded_is_what_is_compared_with(tmp_path):
    from regress import record, regress

    file = tmp_path / "regress.json"
    record([NAME, "complexity"], lambda row: measurement(1.0, 4.0 if row.name == NAME else 2.0), file)
    record(["complexity"], lambda row: measurement(1.0, 9.0), file)  # the other one stays
    table = regress([NAME, "complexity"], lambda row: measurement(1.0, 8.5), file)
    assert {row["row"]: row["committed"] for row in table} == {NAME: 4, "complexity": 9}


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ([measurement(2.0, 6.0)], "as before"),
        ([measurement(4.0, 12.0)], "as before"),  # a slower machine
        ([measurement(1.0, 6.0)], "as before"),  # quicker
        ([measurement(2.5, 6.0)], "as before"),  # within what is allowed
        ([measurement(3.0, 6.0), measurement(3.0, 6.0)], "slower"),
        ([measurement(3.0, 6.0), measurement(2.1, 6.0)], "as before"),  # the second time
        ([measurement(2.0, 6.0, 2**31), measurement(2.0, 6.0, 2**31)], "more memory"),
        ([measurement(9.0, 6.0, 2**31), measurement(9.0, 6.0, 2**31)], "slower and more memory"),
    ],
)
def test_what_is_worse_twice_is_told(found, verdict, results):
    from regress import regress, told

    left = list(found)
    (row,) = regress([NAME], lambda row: left.pop(0), results)
    assert row["verdict"] == verdict and not left
    assert row["committed"] == 3 and row["now"] == max(peer["cpu_s"] / ours["cpu_s"] for ours, peer in found)
    (said,) = told([row]) if verdict != "as before" else [f"{NAME}: {verdict} ("]
    assert said.startswith(f"{NAME}: {verdict} (")


def test_the_other_way_is_brought_to_the_size_of_ours():
    from regress import pair_of, size_of
    from run import chosen

    row = next(row for _, row in chosen([NAME]) if row.name == NAME)
    smaller = dataclasses.replace(row.peers[PEER], size=size_of(row) // 4, grows=2.0, share=0.5)
    row, asked = dataclasses.replace(row, peers={PEER: smaller}), []

    def measure(way):
        asked.append(way.arguments[row.axis])
        return {"cpu_s": 1.0, "added_bytes": 0}

    ours, peer = pair_of(row, measure)
    assert asked == [size_of(row) // 4, size_of(row)]
    assert ours["cpu_s"] == 1 and peer["cpu_s"] == 4**2 / 0.5


def test_a_wrong_name_is_told():
    command = [sys.executable, "-W", "ignore", str(BENCHMARKS / "regress.py"), "nonsense"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("No ratio is called nonsense. There are: gram-100-float32, ")
