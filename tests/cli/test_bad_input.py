"""What a person may do wrong is answered with one sentence and exit status 2, never with a traceback."""

import io
import json
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from torch import nn

from skiplens.base.errors import BrokenFileError, DataError, InvalidInputError
from skiplens.base.files import user_path
from skiplens.cli.flags import read_settings_file
from skiplens.cli.main import main
from skiplens.curvature.landscape import loss_landscape
from skiplens.curvature.spectrum import hessian_spectrum
from skiplens.data.download import cache_folder
from skiplens.data.loading import list_files, load
from skiplens.graph.batch import as_batches
from skiplens.papers.reproduction import words_in
from skiplens.readings.file import read_file
from skiplens.readings.store import BrokenFileWarning, Store
from skiplens.report.inspection import Report
from skiplens.sweeps.run import owner_of
from skiplens.zoo import summary

LISTED = summary()[:6]
SMALL = "zoo:shortcut_linear,units=2,width=784"
TOO_LONG = "long" * 100
NESTED = "[" * 100_000

OWN_CODE = """
import sys
import torch
from torch import nn
class Leaving(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
    def forward(self, x):
        sys.exit(0)
def leaving(): return Leaving()
def exits(): sys.exit(0)
def build(): return nn.Linear(4, 2)
def data(): return torch.ones(3, 4), torch.zeros(3, dtype=torch.long)
def raising():
    yield data()
    raise KeyError("the second file")
def leaving_data():
    yield data()
    sys.exit(0)
"""


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN_CODE)
    return path


def refused(done: tuple[int, str, str], *words: str) -> None:
    """One sentence with these words on standard error, and status 2."""
    code, _, err = done
    complaint = [line for line in err.splitlines() if line.startswith("error: ")]
    assert code == 2 and len(complaint) == 1 and "Traceback" not in err, err
    assert all(word in complaint[0] for word in words), complaint


@pytest.mark.parametrize("verb", [("inspect", SMALL), ("compare", SMALL, SMALL), ("reproduce", "li2016_shortcuts")])
@pytest.mark.parametrize("out", ["a file", "below a file", "too long"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_work(ran, tmp_path, verb, out):
    file = tmp_path / "file"
    file.touch()
    place = {"a file": file, "below a file": file / "deep" / "out", "too long": tmp_path / TOO_LONG}[out]
    refused(ran(*verb, "--out", place), "Nothing can be written to")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_read_only_folder_is_refused(ran, tmp_path, monkeypatch):
    def forbidden(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.mkdir", forbidden)  # root may write everywhere, so the system is played
    refused(ran("inspect", SMALL, "--out", tmp_path / "out"), "Nothing can be written to", "Permission denied")


@pytest.mark.parametrize("function", ["exits", "leaving"])
def test_user_code_that_exits_is_told(ran, own, tmp_path, function):
    words = "inspect", f"{own}:{function}", "--data", f"{own}:data", "--out", tmp_path / "out"
    refused(ran(*words), "exit" if function == "leaving" else "SystemExit: 0")


@pytest.mark.parametrize(("function", "words"), [("raising", "KeyError"), ("leaving_data", "SystemExit")])
def test_a_generator_that_raises_is_told(ran, own, tmp_path, function, words):
    out = "--out", tmp_path / "out"
    refused(ran("inspect", f"{own}:build", "--data", f"{own}:{function}", *out), f"data raised {words} at batch 1")


def test_a_file_that_exits_when_it_is_loaded_is_told(ran, tmp_path):
    (tmp_path / "script.py").write_text("raise SystemExit(3)")
    refused(ran("inspect", f"{tmp_path / 'script.py'}:build", "--out", tmp_path / "out"), "SystemExit: 3")


def test_a_shortage_in_the_data_is_still_a_shortage():
    def starving():
        yield torch.ones(3, 4), torch.zeros(3)
        raise MemoryError

    with pytest.raises(MemoryError):
        list(as_batches(starving()))


@pytest.mark.parametrize("named", [TOO_LONG, "~nouser-here/images", "\0"])
def test_data_that_cannot_be_a_folder_is_refused(ran, tmp_path, named):
    refused(ran("inspect", SMALL, "--data", named, "--out", tmp_path / "out"))


def test_a_folder_that_cannot_be_listed_is_named(monkeypatch, tmp_path):
    def forbidden(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", forbidden)
    with pytest.raises(DataError, match=f"The folder {tmp_path} cannot be listed: Permission denied"):
        list_files(tmp_path)
    with pytest.raises(DataError, match="cannot be listed"):
        load(tmp_path)


@pytest.mark.parametrize("words", [("data", "list"), ("data", "get", "mnist")])
@pytest.mark.parametrize("cache", ["a file", "~nouser-here"])
def test_a_cache_that_is_no_folder_is_refused(ran, monkeypatch, tmp_path, cache, words):
    (tmp_path / "a file").touch()
    monkeypatch.setenv("SKIPLENS_CACHE", str(tmp_path / cache) if cache == "a file" else cache)
    monkeypatch.delenv("SKIPLENS_DATA", raising=False)
    if words == ("data", "list") and cache == "a file":
        assert ran(*words)[0] == 0  # nothing is there, and nothing is asked of it
    else:
        refused(ran(*words), "SKIPLENS_CACHE" if cache == "a file" else "~nouser-here")


def test_without_a_home_the_cache_is_asked_for(monkeypatch):
    for name in ("HOME", "XDG_CACHE_HOME", "SKIPLENS_CACHE"):
        monkeypatch.delenv(name, raising=False)

    def nobody(uid):
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(InvalidInputError, match="No home folder is known"):
        cache_folder()
    with pytest.raises(InvalidInputError, match="starts in a home that does not exist here"):
        user_path("~nouser-here/data")


@pytest.mark.parametrize(
    ("read", "error"),
    [
        (read_settings_file, InvalidInputError),
        (Report.load, InvalidInputError),
        (words_in, InvalidInputError),
        (lambda path: owner_of(path.parent), InvalidInputError),
    ],
    ids=["settings", "report", "verdicts", "sweep"],
)
def test_json_that_is_nested_too_deeply_is_refused(tmp_path, read, error):
    path = tmp_path / "sweep.json"
    path.write_text(NESTED)
    with pytest.raises(error, match="nested too deeply"):
        read(path)


def archive(path, header: object, member: bytes = b"") -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("reading.json", header if isinstance(header, str) else json.dumps(header))
        file.writestr("arrays/0.npy", member)


def eight_petabytes() -> bytes:
    content = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (2**50,)}
    np.lib.format.write_array_header_1_0(content, header)
    return content.getvalue()


def test_a_reading_that_declares_more_than_it_holds_is_broken(tmp_path):
    header = {"format": "skiplens-reading", "format_version": 1, "kind": "structure", "kind_version": 1}
    values = {"values": {"$array": "arrays/0"}, "provenance": {}}
    archive(tmp_path / "a.npz", {**header, **values}, eight_petabytes())
    archive(tmp_path / "b.npz", NESTED)
    for name in ("a.npz", "b.npz"):
        with pytest.raises(BrokenFileError, match=f"{name} is not a whole Skiplens reading"):
            read_file(tmp_path / name)


def test_an_entry_of_the_store_that_is_a_folder_is_set_aside(tmp_path):
    (tmp_path / "key.npz").mkdir()
    with pytest.warns(BrokenFileWarning, match=r"key\.npz is a folder"):
        assert Store(tmp_path).load("key") is None
    assert [path.name.startswith("key.npz.broken-") for path in tmp_path.iterdir()] == [True]


@pytest.mark.parametrize("kind", [nn.CrossEntropyLoss(), "cross_entropy", nn.functional.cross_entropy])
@pytest.mark.parametrize("lens", [hessian_spectrum, loss_landscape])
def test_classes_that_the_model_does_not_have_are_refused(lens, kind):
    data = torch.randn(5, 3), torch.tensor([0, 1, 2, 3, 7])
    with pytest.raises(
        InvalidInputError, match=r"run from 0 to 7, but the model has 4 outputs|The loss cannot be taken"
    ):
        lens(nn.Linear(3, 4), data, loss=kind)


def test_other_trouble_with_files_is_one_line(ran, monkeypatch):
    def trouble(*_):
        raise OSError(5, "Input/output error", "disk")

    monkeypatch.setattr("skiplens.zoo.summary", trouble)
    refused(ran("zoo"), "Input/output error")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("words", [("zoo",), ("studies",), ("zoo", "--json"), ("studies", "--json"), ("data", "list")])
def test_terminals_without_unicode_get_the_same_words(monkeypatch, encoding, words):
    monkeypatch.setattr("skiplens.zoo.summary", lambda: LISTED)

    def written(encoding: str) -> str:
        content = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(content, encoding))
        monkeypatch.setattr(sys, "argv", ["skiplens", *words])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code
        sys.stdout.flush()
        return content.getvalue().decode(encoding)

    plain, whole = written(encoding), written("utf-8")
    if "--json" in words:
        assert json.loads(plain) == json.loads(whole)
    else:
        assert plain == whole.encode(encoding, "replace").decode(encoding)


def test_a_report_is_read_whatever_the_language_of_the_system(tmp_path):
    Report("Größe ×2", ()).write(tmp_path)
    code = "import sys; from skiplens.report import Report; print(ascii(Report.load(sys.argv[1]).title))"
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=plain, capture_output=True, text=True)
    assert done.stdout.strip() == ascii("Größe ×2"), done.stderr
