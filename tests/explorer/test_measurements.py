import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from skiplens.base import memory
from skiplens.base.errors import InvalidInputError
from skiplens.base.memory import budget_bytes
from skiplens.explorer import measurements as explorer_measurements
from skiplens.explorer.measurements import MOST_BYTES, MOST_WAITING, Measurements
from skiplens.explorer.view import Drawing, View

PATIENCE, PATIENCE_ALONE = 1.5, 6.0


@pytest.fixture
def clock(monkeypatch):
    """The seconds that measurements see: a busy machine does not move them."""
    now = [0.0]
    monkeypatch.setattr(explorer_measurements, "monotonic", lambda: now[0])
    return now


@dataclass(frozen=True, eq=False)
class Slow(View):
    """Measures what it is told, and only when it is let go."""

    name: ClassVar[str] = "slow"
    title: ClassVar[str] = "Slow"
    lead: ClassVar[str] = ""
    go: threading.Event = field(default_factory=threading.Event)
    calls: list = field(default_factory=list)
    beats: list = field(default_factory=list)

    def controls(self, words):
        return ()

    def draw(self, values, measured=None):
        return Drawing()

    def measure(self, values, progress):
        self.calls.append(values["x"])
        progress("half", 1, 2)
        while not self.go.wait(0.01):
            progress("half", 1, 2)
            self.beats.append(values["x"])
        if values["x"] < 0:
            raise InvalidInputError("x is negative; give another.")
        if values["x"] == 0:
            return 1 / values["x"]
        return 2 * values["x"]


def until(condition):
    """Wait for it however long a busy machine takes."""
    while not condition():
        time.sleep(0.01)


def goes_on(view):
    """Wait until the measurement that runs has found three times that it is wanted."""
    seen = len(view.beats)
    until(lambda: len(view.beats) > seen + 3)


def test_a_measurement_is_started_told_of_and_kept():
    view, measurements = Slow(), Measurements()
    assert measurements.ask(view, {"x": 3}).state in ("waiting", "running")
    until(lambda: measurements.ask(view, {"x": 3}).label == "half")
    standing = measurements.ask(view, {"x": 3})
    assert (standing.state, standing.done, standing.total) == ("running", 1, 2) and not standing.is_over
    view.go.set()
    assert measurements.wait(view, {"x": 3}).result == 6
    assert measurements.ask(view, {"x": 3}).result == 6
    assert view.calls == [3]


def test_measurements_take_turns():
    view, measurements = Slow(), Measurements()
    measurements.ask(view, {"x": 1})
    until(lambda: view.calls)
    assert measurements.ask(view, {"x": 2}).state == "waiting"
    goes_on(view)
    assert view.calls == [1]
    view.go.set()
    assert measurements.wait(view, {"x": 2}).result == 4


def test_what_nobody_asks_for_any_more_is_abandoned_and_can_be_asked_for_again(clock):
    view, measurements = Slow(), Measurements(patience_alone=PATIENCE_ALONE)
    measurements.ask(view, {"x": 1})
    until(lambda: view.calls)
    clock[0] += PATIENCE_ALONE + 0.1
    until(lambda: not measurements._jobs)
    view.go.set()
    assert measurements.wait(view, {"x": 1}).result == 2
    assert view.calls == [1, 1]


def test_an_abandoned_one_that_waits_for_its_turn_never_starts(clock):
    view, measurements = Slow(), Measurements(patience=PATIENCE)
    measurements.ask(view, {"x": 1})
    until(lambda: view.calls)
    measurements.ask(view, {"x": 2})
    clock[0] += PATIENCE - 0.1
    measurements.ask(view, {"x": 1})
    clock[0] += 0.2
    measurements.ask(view, {"x": 1})
    assert len(measurements._jobs) == 1
    view.go.set()
    assert measurements.wait(view, {"x": 1}).result == 2
    assert view.calls == [1]


def test_what_was_asked_for_last_comes_first(clock):
    view, measurements = Slow(), Measurements()
    measurements.ask(view, {"x": 1})
    until(lambda: view.calls)
    for x in (2, 3, 4, 3):
        measurements.ask(view, {"x": x})
    view.go.set()
    until(lambda: len(view.calls) == 4)
    assert view.calls == [1, 3, 4, 2]


def test_one_that_nobody_asks_for_makes_room_for_one_that_waits(clock):
    view, measurements = Slow(), Measurements(patience=PATIENCE, patience_alone=PATIENCE_ALONE)
    measurements.ask(view, {"x": 1})
    until(lambda: view.calls)
    clock[0] += PATIENCE + 0.1
    goes_on(view)  # no other waits yet
    measurements.ask(view, {"x": 2})
    until(lambda: 2 in view.calls)
    assert view.calls == [1, 2] and not view.go.is_set()


def test_only_so_many_wait_and_no_thread_for_each(clock):
    """Those that were asked for first are forgotten; they can be asked for again."""
    view, measurements = Slow(), Measurements()
    threads = threading.active_count()
    measurements.ask(view, {"x": 1})
    until(lambda: view.calls)
    for x in range(2, 500):
        measurements.ask(view, {"x": x})
    assert threading.active_count() <= threads + 1
    assert len(measurements._jobs) == 1 + MOST_WAITING
    view.go.set()
    until(lambda: measurements._worker is None)
    assert view.calls == [1, *range(499, 499 - MOST_WAITING, -1)]
    assert measurements.wait(view, {"x": 2}).result == 4


def test_a_measurement_plans_with_a_part_of_the_memory(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 2**50)

    class Large(Slow):
        def measure(self, values, progress):
            return budget_bytes("cpu")

    assert Measurements().wait(Large(), {"x": 1}).result == MOST_BYTES < budget_bytes("cpu") == 2**49


def test_code_that_would_end_the_process_ends_its_measurement_alone(caplog):
    class Leaving(Slow):
        def measure(self, values, progress):
            raise SystemExit("bye")

    measurements = Measurements()
    assert measurements.wait(Leaving(), {"x": 1}).problem == "The measurement failed: SystemExit: bye"
    assert measurements.wait(Leaving(), {"x": 2}).state == "failed"


def test_an_error_for_a_person_is_told_as_it_is():
    view, measurements = Slow(), Measurements()
    view.go.set()
    standing = measurements.wait(view, {"x": -1})
    assert standing.state == "failed" and standing.problem == "x is negative; give another."


def test_any_other_error_is_told_too_and_does_not_end_the_others(caplog):
    view, measurements = Slow(), Measurements()
    view.go.set()
    assert measurements.wait(view, {"x": 0}).problem == "The measurement failed: ZeroDivisionError: division by zero"
    assert "measurement of slow failed" in caplog.text
    assert measurements.wait(view, {"x": 1}).result == 2


def test_only_the_latest_results_are_kept():
    view, measurements = Slow(), Measurements(most_kept=2)
    view.go.set()
    for x in (1, 2, 3):
        measurements.wait(view, {"x": x})
    assert measurements.wait(view, {"x": 3}).result == 6 and view.calls == [1, 2, 3]
    assert measurements.wait(view, {"x": 1}).result == 2 and view.calls == [1, 2, 3, 1]
    assert len(measurements._jobs) == 2


def test_a_view_that_announces_a_measurement_must_have_one():
    class Empty(Slow):
        measure = View.measure

    with pytest.raises(NotImplementedError, match="Empty announces a measurement and has none"):
        Empty().measure({}, print)


@pytest.mark.slow
def test_a_process_may_end_while_something_is_measured():
    """A thread that torch's C++ holds when the interpreter goes away would abort the process."""
    code = (
        "import threading, torch\n"
        "from skiplens.explorer.measurements import Measurements\n"
        "from skiplens.explorer.view import View\n"
        "started = threading.Event()\n"
        "class Endless(View):\n"
        "    name = title = lead = 'endless'\n"
        "    def controls(self, words): return ()\n"
        "    def draw(self, values, measured=None): raise NotImplementedError\n"
        "    def measure(self, values, progress):\n"
        "        while True:\n"
        "            torch.randn(300, 300) @ torch.randn(300, 300)\n"
        "            started.set()\n"
        "            progress('', 0, 0)\n"
        "measurements = Measurements()\n"
        "measurements.ask(Endless(), {})\n"
        "started.wait()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
