"""Gram matrices by many workers: symmetric tiles into one zarr store, on this machine or a cluster, resumable."""

import dataclasses
import json
import pickle
import warnings
from collections import Counter, deque
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from skiplens import kernels
from skiplens.base import InvalidInputError, Progress, Settings, SkiplensError, budget_bytes, option, silent, track
from skiplens.base.files import write_atomically
from skiplens.kernels import InfiniteWidthKernel, ModuleKernel
from skiplens.kernels.angular import Quantity
from skiplens.kernels.gram import Journal, begun_matrix, fingerprint, open_matrix, plan_tiles, write_tile
from skiplens.kernels.inputs import directions_of_pair
from skiplens.sweeps.executor import Executor
from skiplens.sweeps.run import Needs, Run

ATTEMPTS = 2  # a tile that fails is tried once more, after all others


@dataclass(frozen=True)
class TileOptions:
    """Deprecated: `spread_gram` takes these as keywords, `budget` as `memory`."""

    quantity: Quantity = "ntk"
    budget: int | None = None
    gpus: int = 0


class Tile(Settings):
    """One tile of a Gram matrix: what a worker is told."""

    matrix: str = option("", "path of the zarr store, the same for all workers")
    kernel: str = option("", "class and fields of the kernel, as JSON")
    quantity: str = option("ntk", "ntk or nngp")
    device: str = option("cpu", "where it is computed")
    rows: tuple[int, int] = option((0, 0), "first row and the one after the last")
    columns: tuple[int, int] = option((0, 0), "first column and the one after the last")


def spread_gram(  # noqa: PLR0913 - options by keyword
    executor: Executor,
    kernel: InfiniteWidthKernel | ModuleKernel,
    inputs: Tensor,
    out: str | Path,
    options: TileOptions | None = None,
    *,
    quantity: Quantity = "ntk",
    memory: int | None = None,
    gpus: int = 0,
    progress: Progress = silent,
) -> Any:
    """The kernel matrix of `inputs` with themselves as a zarr array, its tiles computed by the workers of `executor`.

    Workers read the inputs from a file beside the store and write their tiles into it themselves, so they need a disk
    in common; through this process go only the numbers of tiles. A killed call, or one that lost its workers, goes on
    with what is missing when it is given again.

    Args:
        executor: `LocalWorkers(2)`, `DaskCluster("tcp://head:8786")` or any other.
        kernel: A kernel without learned hyper-parameters; that of a module is pickled beside the store, so that workers
            must be able to import its class.
        inputs: (samples, features).
        out: A path that ends in ``.zarr``.
        options: Deprecated: the keywords in one object.
        quantity: ``"ntk"`` or ``"nngp"``.
        memory: Bytes that a worker may use beside what it has loaded; half of what is free here if not given.
        gpus: GPUs a worker needs, 0 or 1: with one worker a GPU, the tiles are computed there.
        progress: Called after each tile.
    """
    if options is not None:
        warnings.warn("Give the fields of TileOptions as keywords, budget as memory=…", DeprecationWarning, 2)
        quantity, memory, gpus = options.quantity, options.budget, options.gpus
    path = Path(out).absolute()
    directions_of_pair(inputs, None)
    if path.suffix != ".zarr":
        raise InvalidInputError(
            f"Many workers write to a path that ends in .zarr, where each tile is a file; got {path.name!r}."
        )
    plan = plan_tiles(inputs, None, budget_bytes("cpu", memory))
    computed_from = fingerprint(getattr(kernel, quantity), inputs, None)
    with begun_matrix(path, plan, inputs.dtype, computed_from) as (matrix, journal, plan):
        write_atomically(_inputs_of(path), lambda file: np.save(file, inputs.detach().cpu().numpy()))
        module = path.with_name(path.name + ".kernel.pickle")
        if isinstance(kernel, ModuleKernel):
            write_atomically(module, lambda file: pickle.dump(kernel, file))
            description = json.dumps({"class": "ModuleKernel", "file": str(module), "of": computed_from})
        else:
            description = described(kernel)
        common = Tile(str(path), description, quantity, "cuda" if gpus else "cpu")
        runs = {}
        for number, place in enumerate(plan.tiles()):
            if number not in journal.done:
                rows, columns = ((part.start, part.stop) for part in place)
                tile = dataclasses.replace(common, rows=rows, columns=columns)
                runs[number] = Run("skiplens.sweeps.gram_tiles:compute_tile", tile, Needs(gpus=gpus))
        _compute(executor, runs, journal, progress)
        for beside in (_inputs_of(path), module):
            beside.unlink(missing_ok=True)
    return matrix


def compute_tile(tile: Tile) -> dict[str, Tensor]:
    """Compute one tile, write it and its mirror image into the store, and return the number of its entries."""
    path, rows, columns = Path(tile.matrix), slice(*tile.rows), slice(*tile.columns)
    inputs = np.load(_inputs_of(path), mmap_mode="r")
    top, left = (torch.from_numpy(inputs[part].copy()).to(tile.device) for part in (rows, columns))
    block = getattr(rebuilt(tile.kernel), tile.quantity)(top, None if rows == columns else left)
    write_tile(open_matrix(path), (rows, columns), block, symmetric=True)
    return {"entries": torch.tensor([block.numel()])}


def described(kernel: InfiniteWidthKernel) -> str:
    """Class and fields of a kernel as JSON."""
    assert dataclasses.is_dataclass(kernel), "every kernel is a frozen dataclass"
    values = {field.name: getattr(kernel, field.name) for field in dataclasses.fields(kernel)}
    learned = [name for name, value in values.items() if isinstance(value, Tensor)]
    if learned:
        raise InvalidInputError(
            f"{learned[0]} is a tensor that asks for a gradient; workers take plain numbers. Give {learned[0]}.item()."
        )
    return json.dumps({"class": type(kernel).__name__, **values})


@lru_cache(maxsize=1)  # a module's graph is made anew when it is loaded
def rebuilt(description: str) -> InfiniteWidthKernel | ModuleKernel:
    """The kernel that was described."""
    values = json.loads(description)
    if "file" in values:
        with Path(values["file"]).open("rb") as file:
            found = pickle.load(file)  # written beside the store by the process that asks for it
        assert isinstance(found, ModuleKernel)
        return found
    family = getattr(kernels, values.pop("class"))
    assert issubclass(family, InfiniteWidthKernel), "only kernels are described"
    return family(**values)


def _compute(executor: Executor, runs: dict[int, Run], journal: Journal, progress: Progress) -> None:
    """Have every missing tile computed and remember it as soon as it is there."""
    numbers, queue, tries = {run.key: number for number, run in runs.items()}, deque(runs.values()), Counter[str]()
    outcomes = executor.outcomes(queue, lambda running: None) if queue else iter(())
    for outcome in track(outcomes, "kernel matrix", len(runs), progress):
        tries[outcome.run.key] += 1
        if outcome.failure is None:
            journal.mark(numbers[outcome.run.key])
        elif tries[outcome.run.key] < ATTEMPTS:
            queue.append(outcome.run)
        else:
            raise SkiplensError(
                f"A tile failed {ATTEMPTS} times, at last with: {outcome.failure.error} The {len(journal.done)} tiles "
                "that are done are kept; give the same call again to go on."
            )


def _inputs_of(path: Path) -> Path:
    return path.with_name(path.name + ".inputs.npy")
