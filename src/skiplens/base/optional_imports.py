"""One door for each package that `import skiplens` does not load."""

import importlib
from types import ModuleType

from skiplens.base.errors import MissingDependencyError


def optional_import(module: str, needed_for: str, install: str | None = None) -> ModuleType:
    """Import `module` now, or say that it "is needed for <needed_for>" and how to install it.

    `install` is what to hand to pip, the top package of `module` if not given.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = install or module.split(".")[0]
        raise MissingDependencyError(
            f"{module} is needed for {needed_for} and could not be imported ({error}). "
            f"Install it with: pip install '{package}'"
        ) from error
