"""`python -m tests.kills.nursery`: imports everything once, then does each work in a child that may be killed.

A line on standard input names the work and the moment; the answer is a line with how the child ended. The moments are
counted in the child and not taken from a clock, so that they do not depend on the machine's load:

* `call`: the n-th call of a Python function in the main thread,
* `file`: before the n-th file is opened for writing, moved, removed or locked, or a folder is made or removed,
* `byte`: when a file would have more than n bytes; the system ends the process then.
"""

import contextlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
KINDS = ("call", "file", "byte")
LONGEST = 300  # seconds; a child that waits for a lock nobody frees is ended then
_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "fcntl.flock"}


class Moments:
    """Counts what happens in this process, and ends it at a moment."""

    def __init__(self, kind: str, number: int) -> None:
        self.kind, self.number = kind, number
        self.seen = {"call": 0, "file": 0}

    def begin(self) -> None:
        if self.kind == "byte":
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python would make an OSError of it
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.number, self.number))
        if self.kind in ("", "file"):
            sys.addaudithook(self._audited)
        if self.kind in ("", "call"):
            sys.setprofile(self._called)

    def _called(self, frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            self._count("call")

    def _audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _CHANGES or (event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)):
            self._count("file")

    def _count(self, kind: str) -> None:
        self.seen[kind] += 1
        if kind == self.kind and self.seen[kind] == self.number:
            os.kill(os.getpid(), signal.SIGKILL)


def live(asked: dict[str, Any], answers: int) -> None:
    """The life of a child, which ends with its answer."""
    import torch

    from tests.kills.works import WORKS

    signal.alarm(LONGEST)
    torch.set_num_threads(1)
    moments = Moments(asked["kind"], asked["number"])
    moments.begin()
    before = set(sys.modules)
    numbers = WORKS[asked["work"]](Path(asked["folder"]), asked["address"])
    sys.setprofile(None)
    answer = {"numbers": numbers, "seen": moments.seen, "modules": sorted(set(sys.modules) - before)}
    os.write(answers, json.dumps(answer).encode() + b"\n")


def main() -> None:
    import tests.kills.works  # noqa: F401 - what children need is imported once

    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        answers, answer = os.pipe()
        if not (child := os.fork()):
            status = 1
            try:
                os.dup2(2, 1)
                live(json.loads(line), answer)
                status = 0
            except BaseException as error:  # whatever it is, the child must not go on as its parent
                sys.excepthook(type(error), error, error.__traceback__)
            finally:
                os._exit(status)
        os.close(answer)
        with os.fdopen(answers) as file:
            said = json.loads(file.readline() or "{}")
        for name in said.pop("modules", ()):  # the next child has it from the start
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(json.dumps({"ended": ended, **said}) + "\n")
        sys.stdout.flush()


class Nursery:
    """The process that has the children, from outside."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process, self.log = process, log

    def do(self, work: str, folder: Path, address: str = "", kind: str = "", number: int = 0) -> dict[str, Any]:
        """How the child `ended`, with its `numbers` where it came to the end, and what was `seen` without a kind."""
        asked = {"work": work, "folder": str(folder), "address": address, "kind": kind, "number": number}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@contextlib.contextmanager
def nursery(folder: Path) -> Iterator[Nursery]:
    log = folder / "nursery.log"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "MPLBACKEND": "agg"}
    command = [sys.executable, "-m", "tests.kills.nursery"]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout.readline() == "ready\n", log.read_text()
        yield Nursery(process, log)
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    main()
