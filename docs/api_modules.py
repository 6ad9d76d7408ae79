"""MkDocs hook: a line `<!-- modules of skiplens.data -->` becomes the API of the modules behind its public names."""

import ast
import re
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "src"
MARK = re.compile(r"^<!-- modules of (?P<package>[\w.]+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with every mark replaced."""
    return MARK.sub(lambda found: "\n\n".join(f"::: {name}" for name in modules(found["package"])), markdown)


def modules(package: str) -> list[str]:
    """The modules of `package` that its `__init__` takes, or takes names from, in its order, each once."""
    content = ast.parse((SOURCE.joinpath(*package.split(".")) / "__init__.py").read_text(encoding="utf-8"))
    taken: dict[str, None] = {}
    for node in content.body:
        if isinstance(node, ast.ImportFrom) and node.module == package:
            taken |= dict.fromkeys(f"{package}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}."):
            taken[str(node.module)] = None
    return list(taken)
