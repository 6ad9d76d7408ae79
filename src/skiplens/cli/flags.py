"""Flags from settings: one frozen dataclass is the Python options, the JSON file and the command line."""

import functools
import inspect
import re
import types
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import typer

from skiplens.base import Settings, SettingsError, option
from skiplens.base.files import read_json

S = TypeVar("S", bound=Settings)
FILE_HELP = "A JSON file of settings; flags go before it."
LOSS_HELP = "cross_entropy, mse, path/file.py:loss or package.module:loss; chosen by the targets if not given."
MODEL_HELP = "zoo:NAME, path/file.py:function, package.module:function, hf:NAME, timm:NAME or torchvision:NAME."
DATA_HELP = (
    "A data set, a folder of images, a file (npz, pt, safetensors, csv, txt), hf:FOLDER, or path/file.py:function."
)


class DataSettings(Settings):
    """The data of a command, and how it is read."""

    data: str = option("sample", DATA_HELP)
    image_size: int | None = option(None, "Pixels a side to which the images of a folder are scaled and cropped.")
    tokenizer: str | None = option(None, "A folder with the tokenizer of a text.")


class ModelSettings(DataSettings):
    """The model of a command, and its data."""

    model: str = option("zoo:default", MODEL_HELP, positional=True)
    set: tuple[str, ...] = option((), "Options of the model's builder, such as depth=50, separated by commas.")
    weights: str | None = option(None, "Weights to load first: .safetensors, or a weights-only checkpoint.")
    pretrained: bool = option(False, "Weights of hf:, timm: or torchvision: that were downloaded before.")
    seed: int = option(0, "Names every random draw, and the weights of a zoo network.")
    eval: bool = option(False, "Measure the model in evaluation mode, whatever mode it was built in.")
    train: bool = option(False, "Measure the model in training mode, whatever mode it was built in.")


def with_settings(kind: type[S]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command that takes `settings` as its first argument one flag for each field of `kind`.

    A field whose metadata says `positional` becomes an argument. `--settings FILE` reads the rest from JSON.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, *rest = inspect.signature(command).parameters.values()
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in rest]
        hints = get_type_hints(kind)
        flags = [_parameter(entry.name, hints[entry.name], entry.default, entry.metadata) for entry in fields(kind)]
        file_type = Annotated[Path | None, typer.Option("--settings", help=FILE_HELP)]
        file = inspect.Parameter("settings", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=file_type)
        parameters = [*flags, file, *own]

        @functools.wraps(command)
        def with_flags(**given: Any) -> None:
            others = {parameter.name: given.pop(parameter.name) for parameter in own}
            path = given.pop("settings")
            values = read_settings_file(path) if path is not None else {}
            joined = {name: ",".join(value) if isinstance(value, list) else value for name, value in given.items()}
            set_flags = {name: value for name, value in joined.items() if value not in (None, "")}
            try:
                settings = kind.from_json({**values, **set_flags})
            except SettingsError as error:  # in the words of who typed it
                named = re.sub(rf"{kind.__name__}\.(\w+)", lambda found: f"--{found[1].replace('_', '-')}", str(error))
                raise SettingsError(named) from error
            command(settings, **others)

        # Typer reads the signature and the annotations, so both tell of the flags.
        with_flags.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # functions take any attribute
        with_flags.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return with_flags

    return decorate


def _parameter(name: str, hint: Any, default: Any, metadata: Any) -> inspect.Parameter:
    shown = "" if default in (None, "", ()) else f" [default: {default}]"
    text = f"{metadata['help']}{shown}".replace("[", "\\[")
    flag = typer.Option(f"--{name.replace('_', '-')}", help=text, show_default=False)
    option = typer.Argument(help=text, show_default=False) if metadata.get("positional") else flag
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(kind for kind in get_args(hint) if kind is not type(None))
    # Whatever Typer does not know arrives as text and is parsed by the settings themselves.
    word_type = list[str] if get_origin(hint) is tuple else hint if hint in (int, float, bool) else str
    annotation = Annotated[word_type | None, option]  # type: ignore[valid-type]  # a type made at run time
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def read_settings_file(path: Path) -> dict[str, Any]:
    """The JSON object in `path`."""
    try:
        values = read_json(path)
    except OSError as error:
        raise SettingsError(f"The settings file {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise SettingsError(f"The settings file {path} is not JSON: {error}.") from error
    if not isinstance(values, dict):
        raise SettingsError(f"The settings file {path} must hold one JSON object, not a {type(values).__name__}.")
    return values
