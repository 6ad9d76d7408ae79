"""Is anything slower than what is committed? `python benchmarks/regress.py`, or `make regress`: ten ratios, minutes.

Each is the CPU time of another way over ours, both measured now, one after the other, so that the machine and its load
matter little. What looks slower, or takes more memory, is measured once more, and the better of both counts. They are
compared with `regress.json` beside this file; `--record` measures them anew for it, after a change that is meant.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

from measuring import environment, show
from run import chosen
from ways import measured_apart

COMMITTED = Path(__file__).with_suffix(".json")

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

SMALLER = ("empirical-trace", "hessian-linear", "paths-gpt2", "paths-resnet", "product")
"""Measured at the smallest of the row's sizes: at its own these five take longer than five minutes."""

AS_BEFORE = "as before"
CALLS = 3  # whose median counts
SMALL = 2**24  # bytes that an allocator may keep or give back
ALLOWED = 1.3  # a ratio may be so many times worse: medians of a few calls differ by less on a machine with some load


def committed(file=COMMITTED):
    """What was measured before: ours and the other way at a size, by the row's name."""
    return json.loads(file.read_text())["rows"] if file.exists() else {}


def size_of(row):
    """The size that a row is measured at here."""
    return row.sizes[0 if row.name in SMALLER else -1]


def ratio(ours, peer):
    """How many times less CPU time ours takes."""
    return peer["cpu_s"] / max(ours["cpu_s"], 1e-9)


def pair_of(row, measure=measured_apart):
    """Our way and the other one, at the same size; the other brought to it where it ran smaller. A few calls each."""
    size, way = size_of(row), row.peers[PAIRS[row.name]]
    smaller = min(way.size or size, size)
    found, ours = (
        measure(replace(each.at(row.axis, at), repeats=min(each.repeats, CALLS)))
        for each, at in ((way, smaller), (row.ours, size))
    )
    return ours, {**found, "cpu_s": found["cpu_s"] * (size / smaller) ** way.grows / way.share}


def judged(name, measurements, before):
    """The row of the table: the best of some measurements beside what is committed, and what is worse."""
    now, then = max(ratio(*pair) for pair in measurements), ratio(before["ours"], before["peer"])
    bytes_now, bytes_then = min(ours["added_bytes"] for ours, _ in measurements), before["ours"]["added_bytes"]
    slower, larger = now * ALLOWED < then, bytes_now > ALLOWED * bytes_then + SMALL
    verdict = " and ".join(["slower"] * slower + ["more memory"] * larger) or AS_BEFORE
    ratios, sizes = {"committed": then, "now": now}, {"MiB committed": bytes_then / 2**20, "MiB now": bytes_now / 2**20}
    return {"row": name, **ratios, **sizes, "verdict": verdict}


def regress(names, measure=pair_of, file=COMMITTED):
    """The table of these rows."""
    before, table = committed(file), []
    for row in rows(names):
        measurements = [measure(row)]
        if judged(row.name, measurements, before[row.name])["verdict"] != AS_BEFORE:
            measurements.append(measure(row))
        table.append(judged(row.name, measurements, before[row.name]))
        show(table[-1:])
    return table


def rows(names):
    """The rows called so, each once."""
    return [row for _, row in chosen(list(names)) if row.name in names]


def record(names, measure=pair_of, file=COMMITTED):
    """Measure these rows and keep them in the file; a row that ends is kept also where a later one does not."""
    for row in rows(names):
        ours, peer = measure(row)
        kept = {"size": size_of(row), "peer_name": PAIRS[row.name], "ours": ours, "peer": peer}
        found = {**committed(file), row.name: {**kept, "environment": environment()}}
        file.write_text(json.dumps({"rows": {name: found[name] for name in PAIRS if name in found}}, indent=1) + "\n")
        print(f"{row.name}: {ratio(ours, peer):.3g}", flush=True)


def told(table):
    """One line for each ratio that is worse."""
    for row in table:
        if row["verdict"] != AS_BEFORE:
            times = f"{row['now']:.3g} × as fast as {PAIRS[row['row']]}, committed is {row['committed']:.3g} ×"
            memory = f"{row['MiB now']:.0f} MiB, committed are {row['MiB committed']:.0f} MiB"
            yield f"{row['row']}: {row['verdict']} ({times}; {memory})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PAIRS)}; all if none is given")
    parser.add_argument("--record", action="store_true", help="keep what is measured now as what is committed")
    asked = parser.parse_args()
    names = asked.names or list(PAIRS)
    unknown = [name for name in names if name not in PAIRS]
    if unknown:
        raise SystemExit(f"No ratio is called {unknown[0]}. There are: {', '.join(PAIRS)}.")
    if asked.record:
        return record(names)
    table = regress(names)
    print()
    show(table)
    if worse := list(told(table)):
        raise SystemExit("Worse than what is committed, measured twice:\n" + "\n".join(worse))


if __name__ == "__main__":
    main()
