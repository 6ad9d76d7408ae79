"""Run the benchmarks: `python benchmarks/run.py [NAME ...] [--quick]`; `make bench` sets up the peers first.

A NAME is a script or the beginning of a row's name; all rows run without one. A row that ends is kept in
`benchmarks/.work`, so the same command after an interruption goes on with the next row; when all are done their
numbers are in `benchmarks/results` and the page of the documentation is written anew.
"""

import argparse
import importlib
import json
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from measuring import machine_limits, show
from rows import on_device, record

HERE = Path(__file__).parent
RESULTS, WORK = HERE / "results", HERE / ".work"
SCRIPTS = (
    "infinite_width_gram",
    "densenet_gram",
    "module_kernel_gram",
    "empirical_ntk",
    "finite_width_simulation",
    "exact_hessian",
    "hessian_product",
    "hessian_density",
    "jacobian_singular_values",
    "path_spectrum",
    "path_weights",
    "learning_rate_grid",
)

PROGRAMS = ("gram_store",)  # measure several processes at once, so they do it themselves


def chosen(names):
    """The rows that are asked for, each with its script."""
    rows = [(script, row) for script in SCRIPTS for row in importlib.import_module(script).ROWS]
    if not names:
        return rows
    found = [pair for pair in rows if any(pair[0] == name or pair[1].name.startswith(name) for name in names)]
    if not found and not programs(names):
        raise SystemExit(f"No row is called {' or '.join(names)}. There are: {', '.join(row.name for _, row in rows)}.")
    return found


def programs(names):
    """The programs that are asked for."""
    return [program for program in PROGRAMS if not names or program in names]


def keep(script, found, results, suffix=""):
    """Put a row among those of its script, in place of an earlier one of the same name."""
    results.mkdir(parents=True, exist_ok=True)
    file = results / f"{script}{suffix}.json"
    before = json.loads(file.read_text())["rows"] if file.exists() else []
    order = [row.name for row in importlib.import_module(script).ROWS]
    rows = {row["name"]: row for row in before if row.get("name") in order} | {found["name"]: found}
    content = {"script": f"{script}.py", "rows": [rows[name] for name in order if name in rows]}
    file.write_text(json.dumps(content, indent=1) + "\n")


class Session:
    """One run: what is to be measured, where numbers go, and what failed."""

    def __init__(self, results, finished, quick, device="cpu"):
        self.results, self.finished, self.quick = results, finished, quick
        self.suffix = "" if device == "cpu" else "_gpu"
        self.limits = machine_limits(256, 8) if quick else machine_limits(device=device)
        self.failed, self.lock = [], threading.Lock()

    def measure(self, script, row):
        """Measure a row unless that was done before an interruption; a failure leaves the others alone."""
        if (self.finished / row.name).exists():
            print(f"{row.name}: measured before the interruption", flush=True)
            return
        began = time.perf_counter()
        try:
            found = record(row, self.limits, self.quick)
        except (Exception, SystemExit) as error:
            self.failed.append(f"{row.name}: {error}")
            return
        with self.lock:
            keep(script, found, self.results, self.suffix)
            self.mark(row.name)
            print(f"{row.name}: {time.perf_counter() - began:.0f} s", flush=True)
            show([{"way": "Skiplens", **found["ours"]}, *({"way": peer["name"], **peer} for peer in found["peers"])])
            show([{key: target[key] for key in ("words", "value", "reached")} for target in found["targets"]])

    def run_program(self, program):
        """Let a program write its numbers."""
        if (self.finished / program).exists():
            return
        self.results.mkdir(parents=True, exist_ok=True)
        file = self.results / f"{program}.json"
        command = [sys.executable, "-W", "ignore", str(HERE / f"{program}.py"), "--json", str(file)]
        if subprocess.run(command + ["--quick"] * self.quick).returncode:
            self.failed.append(f"{program}: what it said is above")
        else:
            self.mark(program)

    def mark(self, name):
        self.finished.mkdir(parents=True, exist_ok=True)
        (self.finished / name).touch()

    def end(self):
        """Say what failed; if nothing did, the next run starts from the beginning."""
        if self.failed:
            raise SystemExit("\n".join(["Not measured:", *self.failed]))
        shutil.rmtree(self.finished, ignore_errors=True)


def main(names=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=names, help="scripts or beginnings of rows' names")
    parser.add_argument("--quick", action="store_true", help="tiny sizes in this process: do the scripts work at all?")
    parser.add_argument("--device", default="cpu", help="cuda: the rows that can be had there, by wall time")
    parser.add_argument("--workers", type=int, default=1, help="rows at a time, each on a core of its own")
    parser.add_argument("--results", type=Path, help="folder for the numbers")
    parser.add_argument("--list", action="store_true", help="only say which rows there are")
    options = parser.parse_args()
    pairs = chosen(options.names or names)
    if options.list:
        print("\n".join(f"{script:28}{row.name}" for script, row in pairs), *programs(options.names), sep="\n")
        return
    torch.set_num_threads(1)
    if options.quick and options.results is None:
        raise SystemExit("Numbers of tiny sizes belong into a folder of their own: give --results FOLDER.")
    results = options.results or RESULTS
    session = Session(results, WORK if results == RESULTS else results / ".work", options.quick, options.device)
    pairs = [(script, moved) for script, row in pairs if (moved := on_device(row, options.device))]
    with ThreadPoolExecutor(options.workers) as workers:
        list(workers.map(lambda pair: session.measure(*pair), pairs))
    for program in programs(options.names or names) if options.device == "cpu" else ():
        session.run_program(program)
    if results == RESULTS:
        from page import write

        write()
    session.end()


def run_script(file):
    """What a script does when it is run by itself: its rows."""
    main([Path(file).stem])


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main()
