"""Is anything slower than what is committed? `python benchmarks/regress.py`, or `make regress`: ten ratios, minutes.

Each is the CPU time of another way over ours, both measured now, one after the other, so that the machine and its load
matter little. What looks slower, or takes more memory, is measured once more, and the better of both counts.
"""

import argparse
import json

from measuring import show
from run import RESULTS, chosen
from ways import measured_apart

PAIRS = {
    "gram-100-float32": "X Xᵀ alone",
    "densenet-gram": "recursion over layers, torch",
    "empirical-trace": "torch.func",
    "simulation-10": "a loop over torch networks",
    "hessian-linear": "torch.func, reverse over reverse",
    "hessian-relu": "torch.func",
    "product": "training step",
    "paths-resnet": "p + 1 forward passes",
    "paths-gpt2": "p + 1 forward passes",
    "complexity": "three-term recursion",
}
"""The rows whose hot paths most of the rest runs through, and whom each is compared with: what needs torch alone."""

AS_BEFORE = "as before"
SMALL = 2**24  # bytes that an allocator may keep or give back
ALLOWED = 1.3  # a ratio may be so many times worse: medians of a few calls differ by less on a machine with some load


def committed(results=RESULTS):
    """The rows in the results, by their names."""
    files = [json.loads(file.read_text()) for file in results.glob("*.json") if not file.stem.endswith("_gpu")]
    return {row["name"]: row for content in files for row in content["rows"] if "name" in row}


def ratio(ours, peer):
    """How many times less CPU time ours takes."""
    return peer["cpu_s"] / max(ours["cpu_s"], 1e-9)


def pair_of(row, measure=measured_apart):
    """Our way and the other one, each measured at the row's own size; the other brought to it where it ran smaller."""
    size, way = row.sizes[-1], row.peers[PAIRS[row.name]]
    smaller = way.size or size
    found = measure(way.at(row.axis, smaller))
    factor = (size / smaller) ** way.grows / way.share
    return measure(row.ours.at(row.axis, size)), {**found, "cpu_s": found["cpu_s"] * factor}


def judged(name, measurements, before):
    """The row of the table: the best of some measurements beside what is committed, and what is worse."""
    peer = next(peer for peer in before["peers"] if peer["name"] == PAIRS[name])
    now, then = max(ratio(*pair) for pair in measurements), ratio(before["ours"], peer)
    bytes_now, bytes_then = min(ours["added_bytes"] for ours, _ in measurements), before["ours"]["added_bytes"]
    slower, larger = now * ALLOWED < then, bytes_now > ALLOWED * bytes_then + SMALL
    verdict = " and ".join(["slower"] * slower + ["more memory"] * larger) or AS_BEFORE
    ratios, sizes = {"committed": then, "now": now}, {"MiB committed": bytes_then / 2**20, "MiB now": bytes_now / 2**20}
    return {"row": name, **ratios, **sizes, "verdict": verdict}


def regress(names, measure=pair_of, results=RESULTS):
    """The table of these rows."""
    before, table = committed(results), []
    for _, row in (pair for pair in chosen(list(names)) if pair[1].name in names):
        measurements = [measure(row)]
        if judged(row.name, measurements, before[row.name])["verdict"] != AS_BEFORE:
            measurements.append(measure(row))
        table.append(judged(row.name, measurements, before[row.name]))
        show(table[-1:])
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PAIRS)}; all if none is given")
    names = parser.parse_args().names or list(PAIRS)
    unknown = [name for name in names if name not in PAIRS]
    if unknown:
        raise SystemExit(f"No ratio is called {unknown[0]}. There are: {', '.join(PAIRS)}.")
    table = regress(names)
    print()
    show(table)
    worse = [row["row"] for row in table if row["verdict"] != AS_BEFORE]
    if worse:
        raise SystemExit(f"Worse than what is committed: {', '.join(worse)}.")


if __name__ == "__main__":
    main()
