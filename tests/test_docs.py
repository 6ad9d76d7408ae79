"""The documentation says what is: its code runs, its commands exist, its tables are those of the code."""

import ast
import importlib
import importlib.util
import re
import shlex
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LARGEST_PICTURE = 300 * 1024


def place(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    return [found["body"] for found in FENCE.finditer(page.read_text("utf-8")) if found["language"] == language]


def run_blocks(page: Path) -> None:
    """Run the Python blocks of a page one after the other, as a reader would paste them."""
    names: dict[str, object] = {"__name__": "__docs__"}
    for number, source in enumerate(blocks(page, "python"), start=1):
        exec(compile(source, f"{page.name}, block {number}", "exec"), names)


def command_lines(page: Path) -> list[str]:
    """The shell lines of a page that call skiplens or make, in blocks and in running text."""
    in_blocks = chain.from_iterable(body.splitlines() for body in blocks(page, ""))
    inline = re.findall(r"`((?:skiplens|make) [^`]+)`", FENCE.sub("", page.read_text("utf-8")))
    lines = (re.sub(r"^(\w+=\S+ )+", "", line.split("  #")[0].strip()) for line in [*in_blocks, *inline])
    return [line for line in lines if line.startswith(("skiplens ", "make "))]


def require_command(line: str) -> None:
    """Fail unless the verb, its flags and the networks that `line` names exist."""
    from typer.main import get_command

    from skiplens import zoo
    from skiplens.cli.main import app

    words = shlex.split(line.split(">")[0])[1:]
    command = get_command(app)
    while words and hasattr(command, "commands") and not words[0].startswith(("-", "[", "VERB")):
        assert words[0] in command.commands, f"{line!r}: there is no verb {words[0]}"
        command = command.commands[words.pop(0)]
    flags = {flag for parameter in command.params for flag in parameter.opts} | {"--help"}
    for word in words:
        if word.startswith("--") and not hasattr(command, "commands"):
            assert word.partition("=")[0] in flags, f"{line!r}: there is no flag {word}"
        if word.startswith("zoo:") and word != "zoo:NAME":
            name, options = zoo.parse(word.removeprefix("zoo:"))
            zoo.entry(name).settings(options)


WITH_CODE = [page for page in PAGES if blocks(page, "python")]
LONG = {"docs/compare.md", "docs/files.md", "docs/landscape.md", "docs/monitor.md", "docs/training.md"} | {
    f"docs/lenses/{name}.md" for name in ("curvature", "jacobians", "paths", "tangent")
}
"""Pages whose code takes more than a few seconds; that its imports are right is tested for all."""


@pytest.mark.parametrize("page", WITH_CODE, ids=place)
def test_python_blocks_import_what_is_there(page):
    for source in blocks(page, "python"):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("skiplens"):
                module = importlib.import_module(node.module)
                for name in node.names:
                    if not hasattr(module, name.name):
                        importlib.import_module(f"{node.module}.{name.name}")


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] if place(page) in LONG else []) for page in WITH_CODE],
    ids=[place(page) for page in WITH_CODE],
)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.set_default_dtype(torch.float32)  # what a reader has; the fixture of all tests puts it back
    run_blocks(page)


def test_a_broken_block_would_be_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\nx = 1\n```\n\ntext\n\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError):
        run_blocks(page)


@pytest.mark.parametrize("page", [page for page in PAGES if command_lines(page)], ids=place)
def test_commands_exist(page):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in command_lines(page):
        if line.startswith("make "):
            assert line.split()[1] in targets, f"{line!r}: the Makefile has no such target"
        else:
            require_command(line)


@pytest.mark.parametrize(
    "line", ["skiplens inspekt", "skiplens inspect --colour red", "skiplens data fetch", "skiplens inspect zoo:nothing"]
)
def test_a_wrong_command_would_be_noticed(line):
    from skiplens.base.errors import SkiplensError

    with pytest.raises((AssertionError, SkiplensError)):
        require_command(line)


@pytest.mark.parametrize(
    "mistake", ["model", "network", "function", "returned", "inputs", "export", "data", "weights", "fit"]
)
def test_the_errors_that_a_beginner_meets_are_told(mistake, tmp_path, monkeypatch):
    from skiplens.base.errors import SkiplensError

    monkeypatch.chdir(tmp_path)
    with pytest.raises(SkiplensError) as caught:
        make_mistake(mistake)
    told = re.findall(r"^\| `([^`]+)` \|", (DOCS / "start.md").read_text("utf-8"), re.MULTILINE)
    assert any(all(part in str(caught.value) for part in words.split("…")) for words in told), str(caught.value)


def make_mistake(mistake: str) -> None:
    """Do what the table of errors in `start.md` speaks of."""
    from skiplens import data
    from skiplens.cli.models import build_model, load_weights
    from skiplens.graph.dissect import find_residual_blocks

    class MyModel(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x[: len(x[:, 0].unique())])

    Path("my_model.py").write_text("def build():\n    return {}\n")
    torch.save(slice(None), "weights.pt")
    torch.save(torch.nn.Linear(2, 3).state_dict(), "others.pt")
    mistakes = {
        "model": lambda: build_model("resnet"),
        "network": lambda: build_model("zoo:digit_resnet"),
        "function": lambda: build_model("my_model.py:bulid"),
        "returned": lambda: build_model("my_model.py:build"),
        "inputs": lambda: find_residual_blocks(torch.nn.Linear(3, 3), torch.zeros(1, 4)),
        "export": lambda: find_residual_blocks(MyModel(3, 3), torch.ones(1, 3)),
        "data": lambda: data.load("imags"),
        "weights": lambda: load_weights(torch.nn.Linear(2, 2), "weights.pt"),
        "fit": lambda: load_weights(torch.nn.Linear(2, 2), "others.pt"),
    }
    mistakes[mistake]()


def test_the_navigation_lists_exactly_the_pages():
    yaml = pytest.importorskip("yaml")
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    pages = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
    assert sorted(_leaves(settings["nav"])) == pages


def test_the_tables_of_the_zoo_are_those_of_the_code():
    tables = _module(ROOT / "tools/zoo_tables.py")
    text = tables.PAGE.read_text("utf-8")
    assert text == tables.page(text), "run: python tools/zoo_tables.py"


def test_the_api_pages_show_the_names_of_every_door():
    api = _module(DOCS / "api_modules.py")
    page = api.on_page_markdown("# Data\n\n<!-- names of skiplens.data -->\n")
    assert "::: skiplens.data.fetch.get\n" in page and "<!--" not in page
    marked = re.findall(r"<!-- names of (\S+) -->", "\n".join(p.read_text("utf-8") for p in DOCS.rglob("api/*.md")))
    doors = [path.parent for path in (ROOT / "src/skiplens").glob("*/__init__.py") if "import" in path.read_text()]
    assert {f"skiplens.{folder.name}" for folder in doors} <= set(marked)


def test_the_citation_names_this_version_and_four_papers():
    from skiplens import __version__

    citation = pytest.importorskip("yaml").safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert str(citation["version"]) == __version__
    assert len(citation["references"]) == 4
    assert f"[{__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_pictures_are_there_and_small():
    shown = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", (ROOT / "README.md").read_text("utf-8"))
    assert shown
    for picture in shown:
        assert 0 < (ROOT / picture).stat().st_size < LARGEST_PICTURE


@pytest.mark.slow
def test_the_site_asks_no_other_host(tmp_path):
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=600)
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(https?:[^\s\">]+)", page.read_text("utf-8")
        )
        assert not loaded, page


def _leaves(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    entries = nav.values() if isinstance(nav, dict) else nav
    return list(chain.from_iterable(_leaves(entry) for entry in entries))


def _module(path: Path):
    description = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(description)
    description.loader.exec_module(module)
    return module
