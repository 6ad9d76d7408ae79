"""Damaged files: whatever is in them, what comes is an answer or one of our errors, and never another exception.

Each damaged file has a number: `damaged(content, number)` makes it again. The default tier tries the first
QUICK of each kind, the slow one the first MANY.
"""

import io
import json
import random
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from torch import nn

from skiplens.base.errors import SkiplensError
from skiplens.cli.flags import read_settings_file
from skiplens.cli.inspect import InspectSettings
from skiplens.cli.models import load_weights
from skiplens.data.loading import LoadOptions, load
from skiplens.papers.reproduction import words_in
from skiplens.readings.file import read_file, write_file
from skiplens.report import Report
from skiplens.sweeps.run import owner_of
from tests.sample_readings import curvature, structure

QUICK, MANY = 60, 3000
TIERS = [pytest.param(range(QUICK), id="quick"), pytest.param(range(QUICK, MANY), id="many", marks=pytest.mark.slow)]
TIMES_OF_FOLDERS = 10  # a folder of images is that much dearer than a file


def damaged(content: bytes, number: int) -> bytes:
    """The content cut off, with bytes changed, doubled, swapped or taken out, or foreign altogether."""
    draw = random.Random(number)
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8))):
        place, length = draw.randrange(len(changed) + 1), draw.choice((1, 2, 8, 64))
        match draw.randrange(7):
            case 0:
                del changed[place:]
            case 1:
                changed[place : place + length] = draw.randbytes(length)
            case 2:
                del changed[place : place + length]
            case 3:
                changed[place:place] = changed[place : place + length] * draw.choice((1, 50))
            case 4:
                changed[place : place + 1] = bytes([draw.choice((0, 0x7F, 0x80, 0xFF))])
            case 5:
                changed[place : place + length] = bytes(reversed(changed[place : place + length]))
            case 6:
                changed[place:place] = draw.choice(FOREIGN)
    return bytes(changed)


FOREIGN = [
    b"",
    b"[" * 5000,
    b"{}",
    b"null",
    b"1e999",
    b"NaN",
    b"-1",
    b"9" * 30,
    b'"\\ud800"',
    b"\x80\x02.",
    b"PK\x05\x06",
]


VALUES = [None, True, 0, -1, 2**80, 1e300, "", "x", [], [[]], {}, {"float": "x"}, {"dtype": "int64", "shape": [2**60]}]


def misfit(content: bytes, number: int) -> bytes:
    """JSON that is whole, with one of its values exchanged for another, or its name."""
    draw = random.Random(number)
    whole = json.loads(content)
    place = whole
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw.choice(keys)
        if not isinstance(place[key], dict | list) or not place[key] or draw.random() < 0.2:
            break
        place = place[key]
    if isinstance(place, dict) and draw.random() < 0.2:
        place["other"] = place.pop(key)
    else:
        place[key] = draw.choice(VALUES)
    return json.dumps(whole).encode()


def survives(
    read: Callable[[Path], object],
    path: Path,
    content: bytes,
    numbers: Iterable[int],
    change: Callable[[bytes, int], bytes] = damaged,
    refuses: bool = True,
) -> None:
    """Read every damaged content; the sentence of an error stands on one line and is not endless."""
    refused = 0
    for number in numbers:
        path.write_bytes(change(content, number))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read(path)
        except SkiplensError as error:
            refused += 1
            assert str(error), number
        except Exception as error:
            pytest.fail(f"damaged content number {number}: {type(error).__name__}: {error}")
    assert refused or not refuses, "nothing was damaged enough to be noticed"


def weights() -> dict[str, torch.Tensor]:
    return nn.Linear(3, 2).state_dict()


def checkpoint(**how: bool) -> bytes:
    content = io.BytesIO()
    torch.save(weights(), content, **how)
    return content.getvalue()


@pytest.mark.parametrize("numbers", TIERS)
@pytest.mark.parametrize("kind", ["zip", "pickle", "safetensors"])
def test_weights(tmp_path, kind, numbers):
    old = {"_use_new_zipfile_serialization": False}
    content = {"zip": checkpoint, "pickle": lambda: checkpoint(**old), "safetensors": lambda: save(weights())}[kind]()
    path = tmp_path / ("w.safetensors" if kind == "safetensors" else "w.pt")
    survives(lambda path: load_weights(nn.Linear(3, 2), path), path, content, numbers)


@pytest.mark.parametrize("numbers", TIERS)
@pytest.mark.parametrize("kind", ["report", "settings", "verdicts", "sweep"])
@pytest.mark.parametrize("change", [damaged, misfit])
def test_json(tmp_path, kind, numbers, change):
    settings = b'{"model": "zoo:default", "lens": ["paths"], "seed": 3, "verify_seconds": 2.5, "verify": false}'
    verdicts = b'[{"study": "a", "item": "b", "claim": "c", "verdict": "reproduced"}]'
    cases: dict[str, tuple[Callable[[Path], object], bytes]] = {
        "settings": (lambda path: InspectSettings.from_json(read_settings_file(path)), settings),
        "verdicts": (words_in, verdicts),
        "sweep": (lambda path: owner_of(path.parent), b'{"preset": "quick"}\n'),
    }
    if kind == "report":
        Report("title", (structure(), curvature())).write(tmp_path / "report")
        cases["report"] = (Report.load, (tmp_path / "report" / "readings.json").read_bytes())
    survives(cases[kind][0], tmp_path / "sweep.json", cases[kind][1], numbers, change)


@pytest.mark.parametrize("numbers", TIERS)
def test_readings(tmp_path, numbers):
    write_file(tmp_path / "r.npz", structure())
    survives(read_file, tmp_path / "r.npz", (tmp_path / "r.npz").read_bytes(), numbers)


@pytest.mark.parametrize("numbers", TIERS)
def test_folders_of_images(tmp_path, numbers):
    pillow = pytest.importorskip("PIL.Image")
    content = io.BytesIO()
    for name, ending in (("a", "png"), ("b", "gif"), ("c", "jpeg")):
        (tmp_path / name).mkdir()
        pillow.new("RGB", (6, 5), (9, 8, 7)).save(tmp_path / name / f"image.{ending}")
    content = {path: path.read_bytes() for path in tmp_path.rglob("image.*")}
    for path, whole in content.items():
        chosen = numbers[::TIMES_OF_FOLDERS]
        survives(lambda _: list(load(tmp_path, LoadOptions(image_size=4))), path, whole, chosen)
        path.write_bytes(whole)
