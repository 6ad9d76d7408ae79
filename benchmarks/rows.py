"""A row of the benchmarks: the same work by Skiplens and by others, its floor, its growth and its targets."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from measuring import environment, exponent
from ways import Way, measured, measured_apart, runs_here


@dataclass(frozen=True)
class Floor:
    """The least that the work takes: operations and bytes to and from memory, counted by hand."""

    operations: float = 0.0
    bytes: float = 0.0
    dtype: str = "float32"

    def seconds(self, limits):
        """On one thread of a machine with these limits."""
        return max(self.operations / limits[f"{self.dtype}_operations_per_s"], self.bytes / limits["bytes_per_s"])


@dataclass(frozen=True)
class Target:
    """What was asked of a row.

    Attributes:
        words: As it was asked.
        peer: Who is compared with; nobody for `bytes`.
        of: "time" or "memory" of the peer over ours, "result" for our memory over the size of the result, "bytes" for
            all memory of our process.
        least: The ratio that must be reached,
        most: or the amount that must not be exceeded.
    """

    words: str
    peer: str | None = None
    of: str = "time"
    least: float | None = None
    most: float | None = None


def deviation(ours, theirs):
    """Largest deviation relative to the largest number."""
    return float(np.abs(ours - theirs).max() / (np.abs(theirs).max() or 1.0))


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        name: In file names and on the command line.
        work: In the table.
        ours: How Skiplens does it.
        peers: How others do it, by the name in the table.
        axis: The argument that says how large the work is.
        sizes: Three of them; the last one is the row's own.
        quick: Sizes for a test.
        floor: Of the work at a size.
        result_bytes: What is asked for takes at a size.
        targets: What was asked.
        tolerance: How far the numbers may differ.
        compare: How far they do.
        exact: The same in a wider dtype; then everybody, ours too, is compared with it, and else the peers with ours.
        held_back: What a missed target misses for.
        gpu_peers: Those that are compared with on a GPU only,
        gpu_targets: and what was asked there.
    """

    name: str
    work: str
    ours: Way
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    peers: dict[str, Way] = field(default_factory=dict)
    axis: str = "samples"
    floor: Callable[[int], Floor] | None = None
    result_bytes: Callable[[int], float] | None = None
    targets: tuple[Target, ...] = ()
    tolerance: float = 1e-5
    compare: Callable[[np.ndarray, np.ndarray], float] = deviation
    exact: Way | None = None
    held_back: str = ""
    gpu_peers: dict[str, Way] = field(default_factory=dict)
    gpu_targets: tuple[Target, ...] = ()


def on_device(row, device):
    """The row with all its ways on a device; None where ours does not go there, without the peers that do not."""
    if device == "cpu":
        return row
    ours = row.ours.on(device)
    everybody = {**row.peers, **row.gpu_peers}.items()
    peers = {name: moved for name, way in everybody if (moved := way.on(device)) is not None}
    exact = row.exact and row.exact.on(device)
    return ours and replace(row, ours=ours, peers=peers, exact=exact, targets=row.gpu_targets)


def record(row, limits, quick=False):
    """Everything about the row, measured now; numbers that differ end the run before anything is recorded."""
    sizes, measure = (row.quick, measured) if quick else (row.sizes, measured_apart)
    device = row.ours.arguments.get("device", "cpu")
    clock = "cpu_s" if device == "cpu" else "wall_s"
    with tempfile.TemporaryDirectory() as folder:
        files = {size: Path(folder) / f"ours-{size}.npy" for size in sizes}
        ours = {size: measure(_way(row.ours, quick).at(row.axis, size), files[size]) for size in sizes}
        if row.exact is not None:
            right = Path(folder) / "exact.npy"
            measure(row.exact.quick().at(row.axis, sizes[-1]), right)
            ours[sizes[-1]]["deviation"] = _deviation(row, "Skiplens", right, files[sizes[-1]])
            files = {sizes[-1]: right}
        peers = [
            _peer(row, name, _way(way, quick), sizes[-1], files, measure)
            for name, way in row.peers.items()
            if not quick or runs_here(way.environment)
        ]
    found = {"name": row.name, "work": row.work, "axis": row.axis, "size": sizes[-1], "clock": clock}
    found |= {"ours": ours[sizes[-1]], "peers": peers}
    found["growth"] = _growth(list(sizes), [ours[size] for size in sizes], clock)
    if row.floor is not None:
        found["floor"] = _floor(row.floor(sizes[-1]), limits, found["ours"][clock])
    found["targets"] = [_reached(target, row, found) for target in row.targets]
    if not all(target["reached"] for target in found["targets"]):
        found["held_back"] = row.held_back
    return {**found, "environment": {**environment(device), **limits}}


def _way(way, quick):
    return way.quick() if quick else way


def _peer(row, name, way, own, files, measure):
    """One peer: measured, compared, and brought to the row's size where it ran at a smaller one."""
    size = way.size or own
    values = files[own].with_name("peer.npy") if way.same else None
    found = {"name": name, **measure(way.at(row.axis, size), values)}
    if values is not None:
        found["deviation"] = _deviation(row, name, files[size], values)
    factor = (own / size) ** way.grows / way.share
    if factor != 1:
        found |= {key: found[key] * factor for key in ("wall_s", "cpu_s")} | {"extrapolated_by": factor}
    return found


def _deviation(row, name, right, values):
    """How far the numbers in the second file are off those in the first; too far ends the run."""
    found = row.compare(np.load(right), np.load(values))
    if not found <= row.tolerance:
        raise SystemExit(f"{row.name}: {name} deviates by {found:.2g}; its time would mean nothing.")
    return found


def _growth(sizes, ours, clock):
    times, bytes_ = ([found[key] for found in ours] for key in (clock, "added_bytes"))
    exponents = {"time_exponent": exponent(sizes, times), "memory_exponent": exponent(sizes, bytes_)}
    return {"sizes": sizes, clock: times, "added_bytes": bytes_, **exponents}


def _floor(floor, limits, ours):
    seconds = floor.seconds(limits)
    return {"operations": floor.operations, "bytes": floor.bytes, "seconds": seconds, "share": seconds / ours}


def _reached(target, row, found):
    """The target with its value, and whether it is reached."""
    ours, value = found["ours"], None
    if target.of == "bytes":
        value = ours["process_bytes"]
    elif target.of == "result":
        value = ours["added_bytes"] / row.result_bytes(found["size"])
    else:
        key = found["clock"] if target.of == "time" else "added_bytes"
        peer = next((peer for peer in found["peers"] if peer["name"] == target.peer), None)
        value = None if peer is None else peer[key] / max(ours[key], 1e-9)
    reached = value is not None and (value >= target.least if target.least is not None else value <= target.most)
    return {"words": target.words, "of": target.of, "peer": target.peer, "value": value, "reached": reached}
