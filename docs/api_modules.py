"""MkDocs hook: a line `<!-- names of skiplens.data -->` becomes the API of the names which that package exports."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
SOURCE = DOCS.parent / "src"
MARK = re.compile(r"^<!-- names of (?P<package>[\w.]+) -->$", re.MULTILINE)
ENTRY = re.compile(r"^::: (?P<name>[\w.]+)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with every mark replaced by an entry for each name."""
    return MARK.sub(lambda found: "\n\n".join(f"::: {name}" for name in exported(found["package"])), markdown)


def exported(package: str) -> list[str]:
    """The names that the door of `package` re-exports (`from x import y as y`), where they are defined, in order."""
    folder = SOURCE.joinpath(*package.split("."))
    door = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    imports = [node for node in ast.parse(door.read_text("utf-8")).body if isinstance(node, ast.ImportFrom)]
    return [f"{node.module}.{alias.name}" for node in imports for alias in node.names if alias.asname == alias.name]


def public_names() -> Iterator[str]:
    """Every name that the pages of the API list; of a module that is listed whole, all without an underscore."""
    for page in sorted((DOCS / "api").glob("*.md")):
        for found in ENTRY.finditer(on_page_markdown(page.read_text("utf-8"))):
            module = SOURCE.joinpath(*found["name"].split(".")).with_suffix(".py")
            if not module.is_file():
                yield found["name"]
                continue
            for node in ast.parse(module.read_text("utf-8")).body:
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                    yield f"{found['name']}.{node.name}"
