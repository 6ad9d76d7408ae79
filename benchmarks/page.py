"""The page of the documentation, made from `benchmarks/results`: `python benchmarks/page.py` writes it anew."""

import ast
import json
import math
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results", HERE.parent / "docs" / "benchmarks.md"
PROCESSOR_ROWS = {  # the scripts of `make bench`, in the order of the page
    "infinite_width_gram": "What does the kernel of an infinitely wide residual network cost?",
    "densenet_gram": "What does that of a dense network cost?",
    "module_kernel_gram": "What does that of a convolutional module cost?",
    "finite_width_simulation": "How fast are kernels of random finite networks drawn?",
    "empirical_ntk": "What does the tangent kernel of a model as it is cost?",
    "exact_hessian": "What does an exact Hessian cost?",
    "hessian_product": "What does a product with the Hessian of any model cost?",
    "hessian_density": "What does the density of a Hessian's eigenvalues cost?",
    "jacobian_singular_values": "What do singular values cost where batch norm couples the batch?",
    "path_spectrum": "What does a path spectrum cost?",
    "path_weights": "What do path weights cost?",
    "learning_rate_grid": "What does a grid of learning rates cost?",
}
ON_OTHER_PAGES = ("depth_during_training",)
OTHER_TABLES = {  # results of scripts that were run by hand, most of them on a GPU: title and columns
    "infinite_width_gram_h200": (
        "And on a GPU?",
        "`infinite_width_gram_gpu.py` on an NVIDIA H200: residual tangent kernel of 100 blocks, 784 features, float32, "
        "median of 5, CUDA events; asked for were at most 3 times the product alone at 50,000 inputs.",
        {
            "samples": "inputs",
            "product_ms": "product, ms",
            "kernel_ms": "kernel, ms",
            "kernel_over_product": "kernel / product",
            "peak_memory_over_result": "memory / result",
            "error": "error",
        },
    ),
    "gram_store": (
        "Does a Gram matrix larger than the memory finish?",
        "`gram_store.py`: tangent kernel of MNIST (float32, 10 residual blocks) in symmetric tiles over Dask "
        "workers with one thread each, into a zarr store. Every call was interrupted after a third of its tiles and "
        "given again. Time and memory are those of all processes together; asked for were 60,000 images within 4 GiB.",
        {
            "workers": "workers",
            "samples": "images",
            "tiles": "tiles",
            "tiles_after_interruption": "of them after the interruption",
            "wall_s": "wall s",
            "cpu_s": "CPU s",
            "efficiency": "efficiency",
            "peak_gib": "memory, GiB",
            "store_gib": "store, GiB",
            "deviation": "deviation",
        },
    ),
    "kernel_regression": (
        "How accurate is kernel regression with all training images?",
        "`kernel_regression.py`: ridge regression with the best kernel of each architecture, chosen on training images "
        "that were held out, then fitted to 50,000 images by a Cholesky factorisation in float64. Published for fully "
        "connected kernels on CIFAR-10: {published[cifar10]}.",
        {
            "data": "data",
            "architecture": "architecture",
            "quantity": "kernel",
            "depth": "depth",
            "branch_scale": "branch scale",
            "whiten": "whitening",
            "ridge": "ridge",
            "validation": "validation accuracy",
            "test": "test accuracy",
            "kernel_s": "kernel, s",
            "solve_s": "solution, s",
            "peak_gib": "peak, GiB",
        },
    ),
}
CHARTS = {  # of those: what a line is named by, the number it shows, a level to compare with, and words
    "infinite_width_gram_h200": (("samples",), "kernel_over_product", 1.0, "kernel / product of its inputs; line: 1"),
    "gram_store": (
        ("samples", "workers"),
        "peak_gib",
        4.0,
        "memory of all processes, GiB; line: the 4 GiB that were asked for",
    ),
    "kernel_regression": (("data", "architecture", "quantity", "depth"), "test", None, "accuracy on test images"),
}
PROGRAM_TARGETS = (  # file, work, what was asked, size, column, most, unit
    (
        "infinite_width_gram_h200",
        "ResNet tangent kernel, L = 100, 50,000 inputs, float32, H200",
        "≤ 3 × the product alone",
        50_000,
        "kernel_over_product",
        3,
        "×",
    ),
    (
        "gram_store",
        "Gram matrix of 60,000 digits over Dask workers, interrupted once",
        "within 4 GiB",
        60_000,
        "peak_gib",
        4,
        "GiB",
    ),
)


def text():
    """The whole page."""
    found = {script: _rows(RESULTS / f"{script}.json") for script in PROCESSOR_ROWS}
    measured = {script: rows for script, rows in found.items() if rows}
    sections = [_section(script, rows) for script, rows in measured.items()]
    on_gpu = {script: rows for script in PROCESSOR_ROWS if (rows := _rows(RESULTS / f"{script}_gpu.json"))}
    sections += [
        _section(script, rows, f" on an {rows[0]['environment']['device']}") for script, rows in on_gpu.items()
    ]
    others = [_other(name, *how) for name, how in OTHER_TABLES.items() if (RESULTS / f"{name}.json").exists()]
    shown = {*measured, *OTHER_TABLES, *ON_OTHER_PAGES, *(f"{script}_gpu" for script in on_gpu)}
    others += [_earlier(name) for name in _left_over(shown)]
    return (
        "\n\n".join(
            [
                _introduction(measured),
                _targets({**measured, **{f"{name}_gpu": rows for name, rows in on_gpu.items()}}),
                *sections,
                *others,
            ]
        )
        + "\n"
    )


def _left_over(shown):
    """Results that no section shows: those of single runs before `make bench` measured the same."""
    return sorted(file.stem for file in RESULTS.glob("*.json") if file.stem not in shown)


def _earlier(name):
    environment = json.loads((RESULTS / f"{name}.json").read_text())["environment"]
    title = PROCESSOR_ROWS.get(name, name.replace("_", " "))
    words = f"Measured on {environment['date']} in a run of its own, at a load of {environment.get('load', 'unknown')}."
    return _other(name, f"{title[:1].upper()}{title[1:]}: an earlier run", words.replace("{", "("), None)


def write():
    """Write the page."""
    PAGE.write_text(text(), encoding="utf-8")


def _rows(file):
    return [row for row in json.loads(file.read_text())["rows"] if "ours" in row] if file.exists() else []


def _introduction(found):
    environments = [row["environment"] for rows in found.values() for row in rows]
    machines = sorted({f"{e['processor']} with {e['cores']} cores" for e in environments})
    versions = sorted({f"Python {e['python']}, torch {e['torch'].partition('+')[0]}" for e in environments})
    dates, loads = sorted({e["date"] for e in environments}), sorted(e["load"] for e in environments)
    when = " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "never"
    where = f"{', '.join(machines)} ({'; '.join(versions)}; {when}; load {loads[:1]} to {loads[-1:]})"
    return f"""# Benchmarks

`make bench` sets up the libraries that are compared with, each in an environment of its own, runs every row on the
same data and writes this page and `benchmarks/results`; `make bench ROWS="gram empirical"` runs a part. The rows here
were measured on {where.replace("[", "").replace("]", "")}.

Every way runs in a process of its own, with one thread unless said otherwise. Values are compared: a row whose numbers
differ by more than its tolerance is not recorded. *CPU s* and *wall s* are medians; what is done once (tables,
compilation, first calls) is not in them. *Memory* is what the process grows at its peak. The *floor* is the least that
the work takes, operations and bytes counted by hand, at the speed of this machine's matrix products and copies; *share*
is how much of our time that is. *Grows* gives the fitted exponents of time and memory over three sizes.
There is one chart a question; the numbers behind it unfold."""


def _targets(found):
    lines = []
    for rows in found.values():
        for row in rows:
            where = f", {row['environment']['device']}" if "device" in row["environment"] else ""
            for target in row["targets"]:
                lines.append(
                    f"| {row['work']}{where} | {target['words']} | {_value(target)} | {_verdict(row, target)} |"
                )
    lines += _targets_of_programs()
    reached = sum(line.endswith("| reached |") for line in lines)
    words = f"{reached} of {len(lines)} targets were reached; the table says why the others were not."
    table = "\n".join(["| work | asked for | measured |  |", "|---|---|---:|---|", *lines])
    return f"## Was it as fast as was asked for?\n\n{words}\n\n{_folded('Every target', table)}"


def _targets_of_programs():
    """What was asked of scripts that are no rows, read from their results."""
    for name, work, asked, size, key, most, unit in PROGRAM_TARGETS:
        file = RESULTS / f"{name}.json"
        found = [row for row in json.loads(file.read_text())["rows"] if row["samples"] == size]
        for row in found:
            whole = f"{work}, {_name(row, 'workers')}" if "workers" in row else work
            yield f"| {whole} | {asked} | {row[key]:.3g} {unit} | {'reached' if row[key] <= most else 'missed'} |"


def _verdict(row, target):
    if target["reached"]:
        return "reached"
    if target["value"] is None:
        return "the other way was not run"
    return f"missed: {row['held_back']}" if row.get("held_back") else "missed"


def _value(target):
    if target["value"] is None:
        return ""
    if target["of"] == "bytes":
        return _bytes(target["value"])
    ratio = target["value"]
    if target["of"] == "result":
        return f"{ratio:.2f} ×"
    return f"{ratio:.3g} ×" if not target["words"].startswith("≤") else f"{1 / ratio:.3g} ×"


def _section(script, rows, where=""):
    paragraphs = ast.get_docstring(ast.parse((HERE / f"{script}.py").read_text())).split("\n\n")[1:]
    lines = [
        f"## {PROCESSOR_ROWS[script].removesuffix('?' * bool(where))}{where}{'?' * bool(where)}",
        "",
        _times_of_others(rows),
        "",
        f"`{script}.py`: " + " ".join("\n\n".join(paragraphs).split("\n")),
    ]
    ours = ["| work | size | CPU s | wall s | memory | floor, s | share | grows |"]
    ours += ["|---|---:|---:|---:|---:|---:|---:|---|", *map(_ours, rows)]
    peers = ["", "| work | other way | CPU s | wall s | memory | time / Skiplens | deviation |"]
    peers += ["|---|---|---:|---:|---:|---:|---:|"]
    peers += [_peer(row, peer) for row in rows for peer in _compared(row)]
    table = "\n".join([*ours, *(peers if any(row["peers"] for row in rows) else [])])
    return "\n".join([*lines, "", _folded("The numbers", table)])


def _folded(words, table):
    return f'<details markdown="1">\n<summary>{words}</summary>\n\n{table}\n\n</details>'


def _times_of_others(rows):
    """A line for each work, a point for each other way at its time over ours; without others the share of the floor."""
    lines = [
        (row["work"], [(peer["name"], peer[row["clock"]] / row["ours"][row["clock"]]) for peer in row["peers"]])
        for row in rows
        if row["peers"]
    ]
    if lines:
        return _chart(lines, 1.0, "time of other ways / time of Skiplens; line: as fast; right of it: slower")
    shares = [(row["work"], [("least / ours", row["floor"]["share"])]) for row in rows if row.get("floor")]
    return _chart(shares, 1.0, "least time that the work takes / time of Skiplens; line: 1")


def _chart(lines, level, words):
    """Points on an axis, logarithmic where they are compared with a level, as HTML that any width and look can show."""
    if not lines:
        return ""
    values = [value for _, points in lines for _, value in points] + [level] * (level is not None)
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    low, high, scale = (low, high + (low == high), math.log10) if level is not None else (0, 1, float)

    def place(value):
        return f"left:{100 * (scale(value) - low) / (high - low):.1f}%"

    line = f'<i class="level" style="{place(level)}"></i>' if level is not None else ""
    rows = [f'<div class="chart" role="group" aria-label="{escape(words)}">', f"<p>{escape(words)}</p>"]
    for work, points in lines:
        told = ", ".join(f"{escape(name)} <b>{value:.3g}</b>".strip() for name, value in points)
        dots = "".join(
            f'<i class="dot{" left" * (level is not None and value < level)}" style="{place(value)}" '
            f'title="{escape(name)}: {value:.3g}"></i>'
            for name, value in points
        )
        rows.append(f'<div class="line"><span>{escape(work)}: {told}</span><div class="track">{line}{dots}</div></div>')
    marks = [10.0**power for power in range(low, high + 1)] if level is not None else [0.0, 0.25, 0.5, 0.75, 1.0]
    ticks = "".join(f'<i style="{place(mark)}">{mark:g}</i>' for mark in marks)
    return "\n".join([*rows, f'<div class="ticks" aria-hidden="true">{ticks}</div>', "</div>"])


def _ours(row):
    ours, floor, growth = row["ours"], row.get("floor"), row["growth"]
    cells = [row["work"], f"{row['size']:,} {row['axis']}", _seconds(ours["cpu_s"]), _seconds(ours["wall_s"])]
    cells += [
        _bytes(ours["added_bytes"]),
        *([_seconds(floor["seconds"]), f"{floor['share']:.0%}"] if floor else ["", ""]),
    ]
    exponents = [growth["time_exponent"], growth["memory_exponent"]]
    sizes = ", ".join(f"{size:,}" for size in growth["sizes"])
    known = [
        f"{name} {value:.1f}" for name, value in zip(("time", "memory"), exponents, strict=True) if value is not None
    ]
    return "| " + " | ".join([*cells, f"{', '.join(known)} over {sizes}"]) + " |"


def _compared(row):
    """The other ways, and ours before them where it was compared with more exact numbers."""
    ours = [{"name": "Skiplens", **row["ours"]}] if "deviation" in row["ours"] else []
    return ours + row["peers"]


def _peer(row, peer):
    name = peer["name"] + (" (scaled)" if "extrapolated_by" in peer else "")
    ratio = peer[row["clock"]] / row["ours"][row["clock"]]
    deviation = f"{peer['deviation']:.1e}".replace("e-0", "e−").replace("e-", "e−") if "deviation" in peer else ""
    cells = [row["work"], name, _seconds(peer["cpu_s"]), _seconds(peer["wall_s"]), _bytes(peer["added_bytes"])]
    return "| " + " | ".join([*cells, f"{ratio:.3g}", deviation]) + " |"


def _other(name, title, words, columns):
    record = json.loads((RESULTS / f"{name}.json").read_text())
    rows = [{key: value for key, value in row.items() if not isinstance(value, list | dict)} for row in record["rows"]]
    columns = columns or {key: key.replace("_", " ") for key in dict.fromkeys(key for row in rows for key in row)}
    table = ["| " + " | ".join(columns.values()) + " |"]
    table.append("|" + "|".join("---:" if _numeric(rows, key) else "---" for key in columns) + "|")
    table += ["| " + " | ".join(_cell(row.get(key)) for key in columns) + " |" for row in rows]
    chart = []
    if name in CHARTS:
        keys, shown, level, axis = CHARTS[name]
        named = [(" ".join(_name(row, key) for key in keys), [("", row[shown])]) for row in rows]
        chart = [_chart(named, level, axis), ""]
    folded = _folded("The numbers", "\n".join(table))
    return "\n".join([f"## {title}", "", *chart, words.format_map(record), "", folded])


def _name(row, key):
    if key != "workers":
        return _cell(row.get(key))
    return f"{row[key]} worker{'s' * (row[key] > 1)}"


def _numeric(rows, key):
    return any(isinstance(row.get(key), int | float) for row in rows)


def _cell(value):
    if value is None or value != value:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)


def _seconds(value):
    return f"{value:.3g}"


def _bytes(value):
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"


if __name__ == "__main__":
    write()
