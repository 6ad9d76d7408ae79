"""Functions of the user's by name, `path/file.py:function` or `package.module:function`, and what they return."""

import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from skiplens.base.arguments import with_article
from skiplens.base.errors import ModelSpecError, SkiplensError, did_you_mean, refuse_if
from skiplens.base.files import is_file

FORMS = "A function is named path/file.py:function or package.module:function."


def call_by_name(spec: str, **options: Any) -> Any:
    """What the function that `spec` names returns when it is called with these options alone."""
    function = import_by_name(spec)
    try:
        return function(**options)
    except SkiplensError:
        raise
    except (Exception, SystemExit) as error:
        called = f"with {', '.join(options)} alone" if options else "without arguments"
        raise ModelSpecError(f"{spec!r} raised {_one_line(error)} It is called {called}.") from error


def import_by_name(spec: str) -> Callable[..., Any]:
    """The function that `spec` names, not called yet."""
    place, colon, name = spec.rpartition(":")
    refuse_if(not colon or not place or not name, f"{spec!r} does not name a function. {FORMS}", ModelSpecError)
    module = _module_of_file(Path(place), spec) if place.endswith(".py") else _module_of_package(place, spec)
    function = getattr(module, name, None)
    if function is None:
        public = [word for word, value in vars(module).items() if callable(value) and not word.startswith("_")]
        raise ModelSpecError(f"{place} has no function {name!r}. {did_you_mean(name, public)}")
    if not callable(function):
        raise ModelSpecError(f"{spec!r} is {with_article(type(function).__name__)}, not a function.")
    return function


def _module_of_file(path: Path, spec: str) -> ModuleType:
    refuse_if(not is_file(path), f"There is no file {path} (from {spec!r}). {FORMS}", ModelSpecError)
    description = importlib.util.spec_from_file_location(path.stem, path)
    assert description is not None and description.loader is not None, "a .py file always has a loader"
    module = importlib.util.module_from_spec(description)
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)  # so that the file finds its neighbours, as it does when it is run
    try:
        description.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ModelSpecError(f"{path} could not be loaded: {_one_line(error)}") from error
    finally:
        sys.path.remove(folder)
    return module


def _module_of_package(place: str, spec: str) -> ModuleType:
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise ModelSpecError(f"{place} could not be imported: {_one_line(error)}") from error
        raise ModelSpecError(f"There is no module {place!r} (from {spec!r}). {FORMS}") from error
    except (Exception, SystemExit) as error:
        raise ModelSpecError(f"{place} could not be imported: {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    """The error and the line of the user's code it came from."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}."
