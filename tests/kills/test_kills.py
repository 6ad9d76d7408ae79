"""Whatever is killed, wherever it is: going on gives the same bits, nothing is lost or doubled, and no lock stays."""

import contextlib
import os
import random
import shutil
import signal
from pathlib import Path

import pytest
from torch import nn

from skiplens.report import Report, inspect
from tests.data.host import serving
from tests.data.toy import ToyDigits, gzipped
from tests.kills.nursery import KINDS, nursery
from tests.kills.works import WORKS, samples
from tests.sweeps.test_dask_executor import Cluster

pytestmark = pytest.mark.slow
KILLS = 20  # of each work
FEWER = {"reproduce with workers": int(os.environ.get("SKIPLENS_KILLS", "3"))}  # it starts processes; see `make kill`
FINAL = {
    "reproduce": "store/*.npz",
    "data": "toy-digits/*",
    "improve": "parts/*.npz",
}  # what is there once is never written again


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    with nursery(tmp_path_factory.mktemp("nursery")) as started:
        yield started


@pytest.fixture
def address(request, tmp_path):
    """What a work needs besides its folder: a host, or a cluster."""
    work = request.node.callspec.params["work"]
    with contextlib.ExitStack() as stack:
        if work == "data":
            files = {f"{name}.gz": gzipped(content) for name, content in ToyDigits.contents.items()}
            yield stack.enter_context(serving(files)).url
        elif work == "reproduce with Dask":
            pytest.importorskip("distributed")
            cluster = Cluster(tmp_path)
            stack.callback(cluster.stop)
            cluster.start_scheduler()
            cluster.start_worker()
            yield cluster.address
        else:
            yield ""


@pytest.mark.parametrize("work", WORKS)
def test_killed_anywhere_it_goes_on_to_the_same_bits(work, children, address, tmp_path, seed):
    if "zarr" in work:
        pytest.importorskip("zarr")
    children.do(work, begun(work, tmp_path / "rehearsal"), address)  # what it imports is no part of what is killed
    whole = children.do(work, begun(work, tmp_path / "whole"), address)
    assert whole["ended"] == 0, children.log.read_text()
    expected, deaths = visible(tmp_path / "whole"), 0
    sizes = [path.stat().st_size for path in sorted((tmp_path / "whole").rglob("*")) if path.is_file()]
    draw = random.Random(f"{work} {seed}")
    for kill in range(FEWER.get(work, KILLS)):
        folder = begun(work, tmp_path / f"killed-{kill}")
        for kind in (KINDS[kill % len(KINDS)], "call") if kill % 4 == 3 else (KINDS[kill % len(KINDS)],):
            number = draw.randint(1, draw.choice(sizes) if kind == "byte" else whole["seen"][kind])
            ended = children.do(work, folder, address, kind, number)["ended"]
            assert ended in (0, -signal.SIGKILL, -signal.SIGXFSZ), (kind, number, children.log.read_text())
            deaths += ended != 0
            stands(work, folder)
        before = final(work, folder)
        found = children.do(work, folder, address, "never")
        assert found["ended"] == 0, (kind, number, children.log.read_text())
        assert found["numbers"] == whole["numbers"], (kind, number)
        assert visible(folder) == expected, (kind, number)
        assert before.items() <= final(work, folder).items(), (kind, number)
        assert not [path for path in folder.rglob("*") if "lock" in path.name], (kind, number)
        shutil.rmtree(folder)
    assert deaths >= kill / 2, "most moments lie behind the end"


def begun(work: str, folder: Path) -> Path:
    """An inspection finds the report of another one in its folder, all others begin with nothing."""
    first = folder.with_name("first")
    if work == "inspect" and not first.exists():
        inspect(nn.Linear(4, 3), samples(), lenses=("layers",)).write(first)
    if work == "inspect":
        return shutil.copytree(first, folder)
    folder.mkdir()
    return folder


def stands(work: str, folder: Path) -> None:
    """What was whole before is whole after a kill."""
    if work == "inspect":
        assert Report.load(folder).readings and "</html>" in (folder / "report.html").read_text(encoding="utf-8")


def visible(folder: Path) -> set[str]:
    """The files that a person sees; a kill may leave hidden ones, which no reader looks at."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path) for path in paths if not any(part.startswith(".") for part in path.parts)}


def final(work: str, folder: Path) -> dict[Path, tuple[int, int]]:
    """Finished entries: a file that is written again has another time or number."""
    states = {path: path.stat() for path in folder.glob(FINAL.get(work.split(" with ")[0], "nothing"))}
    return {path: (state.st_ino, state.st_mtime_ns) for path, state in states.items()}
