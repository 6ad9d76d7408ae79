"""The house is as CONTRIBUTING draws it."""

import ast
import importlib
import re
import tomllib
from pathlib import Path

import hypothesis

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/skiplens"


def drawing():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    (block,) = re.findall(r"```\ncli\n(.*?)```", text, re.DOTALL)
    return [sorted(line.split(" | ")) for line in ["cli", *block.strip().splitlines()]]


def contract():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = (entry["layers"] for entry in settings if entry["type"] == "layers")
    return [sorted(name.removeprefix("skiplens.") for name in layer.split(" | ")) for layer in layers]


def test_the_drawing_is_the_import_contract():
    assert drawing() == contract()


def test_every_folder_stands_in_the_drawing():
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert {name for line in drawing() for name in line} == folders


def test_no_test_fails_for_the_time_that_it_takes():
    """The profile of tests/conftest.py is the one place that speaks of it."""
    assert hypothesis.settings().deadline is None
    assert hypothesis.HealthCheck.too_slow in hypothesis.settings().suppress_health_check
    word = re.compile(r"\bdeadline=|wait_for_timeout\((?!50\))")  # 50: between two looks at a condition
    sources = {path: path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py")}
    found = {path.relative_to(ROOT).as_posix() for path, text in sources.items() if word.search(text)}
    assert found - {"tests/test_house.py"} == {"tests/conftest.py"}


def test_files_are_chapters():
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in SOURCE.rglob("*.py")}
    assert max(lengths.values()) <= 500, [str(path) for path, length in lengths.items() if length > 500]
    # 51,232 lines when it was rebuilt; forecast, improvement, task and infinite width came after, then shared weights
    # and mixtures in infinite width, towers, many networks trained side by side; batch norm of any batch, pictures of
    # samples, landscapes and trainings in the explorer; graphs rewritten without tracing them again, joins that are
    # none, questions of our own; several targets, gradients that end, backward passes that are no derivative, tied
    # tables, what a costly model is spared; exports of what decides by values, second derivatives of batch norm
    assert len(lengths) <= 380 and sum(lengths.values()) <= 64_930
    chapters = sorted(length for path, length in lengths.items() if path.name != "__init__.py")
    assert 130 <= chapters[len(chapters) // 2] <= 220


def test_the_files_that_contributing_names_are_there():
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)", (ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    missing = [name for name in named if not (SOURCE / name).is_file() and not (ROOT / name).is_file()]
    assert named and not missing


def test_scripts_beside_the_package_import_what_is_there():
    for folder in ("benchmarks", "examples", "results", "tools"):
        for path in (ROOT / folder).glob("**/*.py"):
            if ".peers" in path.parts or ".work" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "skiplens":
                    module = importlib.import_module(node.module)
                    for name in node.names:
                        if not hasattr(module, name.name):
                            importlib.import_module(f"{node.module}.{name.name}")
