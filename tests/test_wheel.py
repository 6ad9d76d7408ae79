"""The wheel: everything that is not code is in it, and it works where nothing but its own requirements is installed."""

import os
import re
import subprocess
import sys
import venv
import zipfile
from email.parser import HeaderParser
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from skiplens.base.version import VERSION

PROJECT = Path(__file__).parents[1]
EXTRAS = {"sklearn", "gpytorch", "zarr", "distributed", "tensorboard", "pytorch_lightning", "dash", "pytest"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = "import hatchling.build, sys; print(hatchling.build.build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(folder)], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    return folder / done.stdout.split()[-1]


def metadata_of(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return HeaderParser().parsestr(archive.read(name).decode("utf-8"))


def test_the_wheel_is_whole(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    source = PROJECT / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in (source / "skiplens").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted <= set(names)
    for data in ("skiplens/py.typed", "skiplens/report/templates/report.html.j2", "skiplens/data/sample/NOTICE.md"):
        assert data in names


def test_its_licences_are_those_of_the_code_and_of_what_is_embedded(wheel):
    metadata = metadata_of(wheel)
    assert metadata["License-Expression"] == "MIT AND CC-BY-SA-3.0"
    notices = {"src/skiplens/data/sample/NOTICE.md", "src/skiplens/report/templates/PLOTLY.md"}
    assert set(metadata.get_all("License-File")) == {"LICENSE", *notices}
    notice = (PROJECT / "src/skiplens/data/sample/NOTICE.md").read_text("utf-8")
    assert "Creative Commons Attribution-ShareAlike 3.0" in notice
    assert "MIT License" in (PROJECT / "src/skiplens/report/templates/PLOTLY.md").read_text("utf-8")


def test_its_version_is_the_same_wherever_it_is_written(wheel):
    citation = re.search(r"^version: (.*)$", (PROJECT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    newest = re.search(r"^## \[(.*?)\]", (PROJECT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert metadata_of(wheel)["Version"] == citation[1] == newest[1] == VERSION


def required(metadata_lines, found):
    """The installed distributions that these lines ask for without any extra of ours, and what those ask for."""
    for line in metadata_lines:
        requirement = Requirement(line)
        extras = ("", *requirement.extras)
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        try:
            asked = distribution(requirement.name)
        except PackageNotFoundError:  # torch's own, for another machine
            continue
        if asked.metadata["Name"] not in found:
            found[asked.metadata["Name"]] = asked
            required(asked.requires or (), found)
    return found


def link(distribution: Distribution, packages: Path) -> None:
    """Show the files of an installed distribution in another environment."""
    tops = {Path(file).parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
    for top in tops:
        place = packages / top
        if not place.exists():
            place.symlink_to(distribution.locate_file(top))


@pytest.fixture(scope="module")
def clean(wheel, tmp_path_factory):
    """An interpreter that finds the wheel, its requirements and nothing else."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    for asked in required(metadata_of(wheel).get_all("Requires-Dist"), {}).values():
        link(asked, packages)
    zipfile.ZipFile(wheel).extractall(packages)
    hidden = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def run(*arguments):
        command = [folder / "bin/python", "-W", "error::ImportWarning", *arguments]
        return subprocess.run(command, cwd=folder, env=hidden, capture_output=True, encoding="utf-8")

    return run


def test_it_is_imported_where_no_extra_is_installed(clean):
    """Every module of it, but those that are nothing without the package of an extra."""
    program = (
        "import importlib, importlib.util, pkgutil, skiplens\n"
        "[getattr(skiplens, name) for name in dir(skiplens)]\n"
        f"print(skiplens.__file__, [name for name in {EXTRAS} if importlib.util.find_spec(name)])\n"
        "for module in pkgutil.walk_packages(skiplens.__path__, 'skiplens.'):\n"
        "    if module.name.endswith('__main__'): continue\n"
        "    try: importlib.import_module(module.name)\n"
        "    except ImportError as error: print(module.name, error.name)\n"
    )
    done = clean("-c", program)
    assert done.returncode == 0, done.stderr
    first, *missing = done.stdout.splitlines()
    assert first.endswith("site-packages/skiplens/__init__.py []")
    needs = dict(line.split() for line in missing)
    assert set(needs.values()) <= EXTRAS | {"flask"}, needs


def test_its_command_runs_there_and_names_the_extra_that_a_verb_needs(clean):
    explored = clean("-m", "skiplens", "explore", "--no-browser")
    assert explored.returncode != 0 and "skiplens[explorer]" in explored.stderr and "Traceback" not in explored.stderr


@pytest.mark.slow
def test_it_looks_at_a_network_there(clean, tmp_path):
    done = clean("-m", "skiplens", "inspect", "--out", str(tmp_path / "report"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report/report.html").is_file()
