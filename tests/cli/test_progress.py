import io
import re
import sys

import pytest

from skiplens.base.progress import stage
from skiplens.cli import console
from skiplens.papers import study
from skiplens.report.lenses import LENSES
from tests.cli.test_compare import MODELS

SENTENCE = "Trains, as it seems."


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MODELS)
    return path


def screen(written: str) -> tuple[list[str], int]:
    """What a terminal has on its lines at the end, and how long the longest ever was."""
    lines, row, widest = [""], 0, 0
    for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", written):
        if token == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif token == "\x1b[1A":
            row -= 1
        elif token in ("\r", "\x1b[2K"):  # here all that follows a return is as long as what it is written over
            lines[row] = ""
        elif not token.startswith("\x1b"):
            lines[row] += token.rstrip("\n")
            widest = max(widest, len(lines[row]))
    return [line.rstrip() for line in lines], widest


def work(progress) -> None:
    """Two stages of many steps, the second of two kinds; one says what it found."""
    first, second = stage("paths", progress), stage("curvature", progress)
    for done in range(30):
        first("deleting blocks", done, 30)
    first(SENTENCE, 30, 30)
    for label in ("Lanczos steps", "trace and norm"):
        for done in range(5):
            second(label, done, 5)


def test_without_a_terminal_a_stage_is_one_line(capfd):
    with console.progress_shown() as progress:
        work(progress)
    assert capfd.readouterr().err.splitlines() == ["paths", SENTENCE, "curvature"]


@pytest.mark.parametrize("columns", ["40", "100"])
def test_a_terminal_has_one_line_that_rewrites_itself(columns, monkeypatch):
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm")
    with console.progress_shown() as progress:
        work(stage("a network with a rather long name (1 of 4)", progress))
    lines, widest = screen(shown.getvalue())
    assert lines == [SENTENCE, "", ""], "the sentence, the line that rewrites itself and was taken away, the cursor"
    assert 20 < widest <= int(columns)


@pytest.mark.slow
def test_inspect_writes_a_line_for_each_lens_to_a_log(file, tmp_path, ran):
    _, _, told = ran("inspect", f"{file}:large", "--data", f"{file}:data", "--no-pilot", "--out", tmp_path / "o")
    assert sorted(line for line in told.splitlines() if not line.endswith(".")) == sorted(LENSES)


@pytest.mark.slow
def test_compare_writes_a_line_for_each_draw_to_a_log(file, tmp_path, ran):
    names = [f"{file}:small", f"{file}:large"]
    few = ("--lens", "structure,signal", "--draws", "2", "--out", tmp_path / "o")
    _, _, told = ran("compare", *names, "--data", f"{file}:data", *few)
    assert told.splitlines() == [f"{name} ({place} of 4)" for place, name in enumerate(2 * names, start=1)]


def test_reproduce_writes_at_most_eleven_lines_to_a_log(monkeypatch, tmp_path, ran):
    monkeypatch.setattr(study, "MODULES", {"small": "tests.papers.small_study"})
    monkeypatch.setattr("tests.papers.small_study.REPEATED", 40)
    _, _, told = ran("reproduce", "small", "--preset", "smoke", "--workers", "1", "--out", tmp_path / "out")
    counted = [int(line.split(" of ")[0]) for line in told.splitlines() if "runs done" in line]
    assert counted == [*range(0, 41, 4)]
