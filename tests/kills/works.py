"""Work that is begun or gone on with in a folder, small enough to be killed many times; each returns its numbers."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from skiplens.base.files import write_atomically
from skiplens.curvature.landscape import loss_landscape
from skiplens.data import download
from skiplens.data.catalogue import CATALOGUE
from skiplens.data.fetch import get
from skiplens.improvement import improve
from skiplens.kernels import ResNetKernel
from skiplens.kernels.gram import gram
from skiplens.papers.reproduction import ReproductionEffort, reproduce, write_folder
from skiplens.readings.file import read_file
from skiplens.readings.store import Store
from skiplens.report import Report, inspect
from skiplens.report.during_training.monitor import Monitor
from skiplens.sweeps.dask_executor import DaskCluster
from skiplens.sweeps.executor import Executor, LocalWorkers, ThisProcess
from skiplens.trainability.forecast import forecast
from tests.data.toy import ToyDigits
from tests.papers.small_study import study

BRIEF = {"steps": 70, "cost": 140}
Numbers = dict[str, object]
Work = Callable[[Path, str], Numbers]
"""Does what is missing in the folder; the second argument is an address, for work that needs one."""


def bits(tensor: torch.Tensor) -> str:
    """A word for the tensor's type, shape and bits."""
    content = torch.as_tensor(tensor).detach().contiguous()
    return f"{content.dtype} {tuple(content.shape)} {hashlib.sha256(content.numpy().tobytes()).hexdigest()}"


def perceptron(*between: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), *between, nn.Tanh(), nn.Linear(6, 3))


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(24, 4, generator=generator), torch.arange(24) % 3


def inspection(folder: Path, address: str) -> Numbers:
    inspect(perceptron(), samples(), lenses=("layers",)).write(folder)
    found = Report.load(folder)
    return {"values": json.dumps([entry["values"] for entry in found.to_json()["readings"]]), "verdict": found.verdict}


def landscape(folder: Path, address: str) -> Numbers:
    asked = {"loss": "cross_entropy", "points": 5, "journal": str(folder)}
    found = loss_landscape(perceptron(), samples(), **asked)
    rows = len((folder / "rows.jsonl").read_bytes().splitlines())
    return {"losses": bits(found.losses), "curvatures": bits(found.curvatures), "rows": rows}


def forecasting(folder: Path, address: str) -> Numbers:
    found = forecast(perceptron(nn.Dropout(0.2), nn.BatchNorm1d(6)), samples(), cost=24, steps=50, journal=folder)
    numbers = {"losses": bits(found.losses), "curve": bits(found.curve), "cost": found.cost, "rate": found.rate.hex()}
    return numbers | {"interval": [value.hex() for value in found.interval]}


def improving(folder: Path, address: str) -> Numbers:
    torch.manual_seed(1)
    layers = [part for _ in range(6) for part in (nn.Linear(4, 4), nn.ReLU())]
    inputs = torch.randn(40, 4, generator=torch.Generator().manual_seed(2))
    found = improve(nn.Sequential(*layers, nn.Linear(4, 3)), (inputs, inputs[:, :3].argmax(1)), **BRIEF, out=folder)
    race = {} if found.race is None else {"before": bits(found.race.before), "after": bits(found.race.after)}
    return {"scores": bits(found.reading.scores), "sentence": found.sentence, "cost": found.reading.cost, **race}


def gram_matrix(folder: Path, ending: str) -> Numbers:
    X = torch.randn(40, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    matrix = gram(ResNetKernel(3, 1, 0.5).ntk, X, out=folder / f"gram{ending}", memory=40_000)
    return {"matrix": bits(torch.as_tensor(matrix[:]).clone())}


def reproduction(folder: Path, executor: Executor) -> Numbers:
    small = study()
    found = reproduce([(small, small.items[0])], folder, ReproductionEffort("smoke"), executor)
    write_folder(found, folder)
    store = Store(folder / "store")
    kept = {key: bits(store.load(key)["heads"]) for key in store.keys()}
    return {"verdicts": json.dumps([verdict.to_json() for verdict in found.verdicts]), "kept": kept}


def data_cache(folder: Path, address: str) -> Numbers:
    os.environ |= {"SKIPLENS_CACHE": str(folder), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    download._FOLLOWED = (*download._FOLLOWED, "http://127.0.0.1:")
    CATALOGUE["toy-digits"] = ToyDigits.data_set(address)
    found = get("toy-digits")
    return {"images": bits(found.images), "labels": bits(found.labels)}


def monitored(folder: Path, address: str) -> Numbers:
    """A user's loop with a checkpoint every four steps, and a monitor that looks every two."""
    model, (inputs, targets) = perceptron(nn.BatchNorm1d(6)), samples()
    optimizer, first, kept = torch.optim.Adam(model.parameters(), lr=0.05), 0, folder / "mine.pt"
    if kept.exists():
        state = torch.load(kept, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    options = {"every": 2, "share": 1e9, "products": 6, "samples": 8, "quantities": ("weight_norm", "curvature")}
    monitor = Monitor(model, (inputs, targets), path=folder / "monitor.npz", **options).start(first)
    for step in range(first + 1, 13):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        monitor.step()
        if step % 4 == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            write_atomically(kept, lambda file: torch.save(state, file))  # noqa: B023 - called at once
    monitor.close()
    found = read_file(folder / "monitor.npz")
    return {"steps": found.steps.tolist(), **{name: bits(rows) for name, rows in found.measured.items()}}


WORKS: dict[str, Work] = {
    "inspect": inspection,
    "landscape": landscape,
    "forecast": forecasting,
    "improve": improving,
    "gram npy": lambda folder, _: gram_matrix(folder, ".npy"),
    "gram zarr": lambda folder, _: gram_matrix(folder, ".zarr"),
    "reproduce": lambda folder, _: reproduction(folder, ThisProcess()),
    "reproduce with workers": lambda folder, _: reproduction(folder, LocalWorkers(2)),
    "reproduce with Dask": lambda folder, address: reproduction(folder, DaskCluster(address, patience=600, timeout=60)),
    "data": data_cache,
    "monitor": monitored,
}
