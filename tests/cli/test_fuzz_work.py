"""Damaged files of data and of work that goes on: the right numbers come, or one of our errors, never anything else."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save

from skiplens.base.errors import SkiplensError
from skiplens.curvature.landscape import loss_landscape
from skiplens.data.files import load_file
from skiplens.data.formats import read_cifar, read_idx, write_cifar
from skiplens.kernels import ResNetKernel
from skiplens.kernels.gram import gram
from skiplens.trainability import extrapolation
from skiplens.trainability.journal import Journal
from skiplens.training.checkpoints import Keeper, read_checkpoint
from tests.cli.test_fuzz import TIERS, damaged, misfit, survives
from tests.curvature.slices import classes, perceptron
from tests.data.toy import write_idx

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
KERNEL = ResNetKernel(2, 1, 0.5)
FOUND = {"csv": (493,), "directions.pt": (1080,), "gram.npy": (320,), "gram.zarr/zarr.json": (1240,)}
"""Contents that once ended in another exception; the default tier tries them too."""
DEARER = 10  # so much dearer than to read a file is work that goes on from it


def arrays() -> dict[str, torch.Tensor]:
    return {"x": torch.rand(4, 3), "y": torch.arange(4)}


def stored(write) -> bytes:
    content = io.BytesIO()
    write(content)
    return content.getvalue()


def with_found(kind: str, numbers: range) -> list[int]:
    return sorted({*numbers, *FOUND.get(kind, ())})


DATA = {
    "npz": lambda: stored(lambda file: np.savez(file, **{name: one.numpy() for name, one in arrays().items()})),
    "pt": lambda: stored(lambda file: torch.save(arrays(), file)),
    "safetensors": lambda: save(arrays()),
    "csv": lambda: b"a,b,label\n1,2.5,0\n3,4,1\n-1e3,0,2\n",
}


@pytest.mark.parametrize("numbers", TIERS)
@pytest.mark.parametrize("kind", DATA)
def test_data_files(tmp_path, kind, numbers):
    survives(load_file, tmp_path / f"data.{kind}", DATA[kind](), with_found(kind, numbers))


@pytest.mark.parametrize("numbers", TIERS)
def test_images_of_data_sets(tmp_path, numbers):
    images = torch.arange(2 * 3 * 32 * 32).remainder(256).to(torch.uint8).reshape(2, 3, 32, 32)
    survives(lambda path: read_idx(path.read_bytes()), tmp_path / "idx", write_idx(images[0, 0, :4]), numbers)
    records = write_cifar(images, torch.tensor([1, 2], dtype=torch.uint8))
    survives(lambda path: read_cifar(path.read_bytes(), 1, 10), tmp_path / "cifar", records, numbers)


@pytest.mark.parametrize("numbers", TIERS)
def test_checkpoints_of_trainings(tmp_path, numbers):
    path = tmp_path / "run.pt"
    Keeper(path).write({"weights": arrays(), "step": 3, "record": {"losses": torch.rand(3)}})
    survives(read_checkpoint, path, path.read_bytes(), numbers)


@pytest.mark.parametrize("numbers", TIERS)
def test_journals_of_forecasts(tmp_path, numbers):
    """A damaged file counts as not there: nothing but what was written is ever read from it."""
    cpu, identity = torch.device("cpu"), {"model": "mine"}
    Journal(cpu, tmp_path, tmp_path / "kept", identity).put(0.5, [2.0, 1.0], {"model": arrays()}, 1)
    path = tmp_path / "kept/rate_0.5.pt"
    whole = path.read_bytes()
    for number in numbers:
        path.write_bytes(damaged(whole, number))
        try:
            assert Journal(cpu, tmp_path, tmp_path / "kept", identity).losses(0.5) in ([], [2.0, 1.0]), number
        except SkiplensError as error:
            assert str(error), number


@pytest.mark.parametrize("numbers", TIERS)
@pytest.mark.parametrize("file", ["rows.jsonl", "directions.pt"])
def test_journals_of_landscapes(tmp_path, file, numbers):
    def sliced(path: Path) -> torch.Tensor:
        asked = {
            "loss": "cross_entropy",
            "points": 3,
            "directions": "random",
            "dimensions": 1,
            "journal": str(tmp_path),
        }
        return loss_landscape(perceptron(), classes(), **asked).losses

    whole = sliced(tmp_path)
    content = {path: path.read_bytes() for path in tmp_path.iterdir()}

    def right(path: Path) -> None:
        for other in set(content) - {path}:
            other.write_bytes(content[other])
        assert torch.equal(sliced(path), whole) or file == "directions.pt"

    numbers = with_found(file, numbers[::DEARER])
    survives(right, tmp_path / file, content[tmp_path / file], numbers, refuses=file != "rows.jsonl")


@pytest.mark.parametrize("numbers", TIERS)
@pytest.mark.parametrize("change", [damaged, misfit])
def test_tiles_of_kernel_matrices(tmp_path, change, numbers):
    """Half of the tiles are done, and the journal that says so is damaged."""
    whole = KERNEL.ntk(X)
    path = tmp_path / "gram.npy"
    gram(KERNEL.ntk, X, out=path, memory=40_000)
    tiles = tmp_path / "gram.npy.tiles"
    said = json.loads(tiles.read_bytes())
    assert int(said["done"], 16) > 3

    def right(_: Path) -> None:
        torch.testing.assert_close(torch.as_tensor(gram(KERNEL.ntk, X, out=path, memory=40_000).copy()), whole)

    survives(right, tiles, tiles.read_bytes(), numbers[::DEARER], change)


@pytest.mark.parametrize("numbers", TIERS)
@pytest.mark.parametrize("file", ["gram.npy", "gram.zarr/zarr.json"])
def test_kernel_matrices(tmp_path, file, numbers):
    if "zarr" in file:
        pytest.importorskip("zarr")
    path = tmp_path / file.partition("/")[0]
    gram(KERNEL.ntk, X, out=path, memory=40_000)
    tiles = path.with_name(f"{path.name}.tiles")
    done = json.loads(tiles.read_bytes())

    def go_on(_: Path) -> None:
        tiles.write_text(json.dumps(done))
        gram(KERNEL.ntk, X, out=path, memory=40_000)[:]

    survives(go_on, tmp_path / file, (tmp_path / file).read_bytes()[:400], with_found(file, numbers[::DEARER]))


@pytest.mark.parametrize("numbers", TIERS)
@pytest.mark.parametrize("change", [damaged, misfit])
def test_fits(tmp_path, change, numbers, monkeypatch):
    content = extrapolation.FITS.read_bytes()
    monkeypatch.setattr(extrapolation, "FITS", tmp_path / "fit.json")
    survives(lambda _: extrapolation.fit_for.__wrapped__("steps"), tmp_path / "fit.json", content, numbers, change)
