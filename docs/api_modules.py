"""MkDocs hook: a line `<!-- modules of skiplens.data -->` becomes the API of the modules behind its public names."""

import ast
import re
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "src"
MARK = re.compile(r"^<!-- modules of (?P<package>[\w.]+) -->$", re.MULTILINE)
ENTRY = re.compile(r"^::: [\w.]+$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with every mark replaced; a module that is also named on the page is shown once."""
    told: set[str] = set()
    filled = MARK.sub(lambda found: "\n\n".join(f"::: {name}" for name in modules(found["package"])), markdown)
    return ENTRY.sub(lambda found: "" if found[0] in told else told.add(found[0]) or found[0], filled)


def modules(package: str) -> list[str]:
    """The modules that `package` takes, or takes names from, in its order, each once; a package stands for its own."""
    init = SOURCE.joinpath(*package.split("."), "__init__.py")
    if not init.is_file():
        return [package]
    content = ast.parse(init.read_text(encoding="utf-8"))
    taken = [name for node in content.body if isinstance(node, ast.ImportFrom) for name in _taken(node, package)]
    return list(dict.fromkeys(module for name in taken for module in modules(name)))


def _taken(node: ast.ImportFrom, package: str) -> list[str]:
    if node.module == package:
        return [f"{package}.{alias.name}" for alias in node.names]
    return [str(node.module)] if str(node.module).startswith(f"{package}.") else []
