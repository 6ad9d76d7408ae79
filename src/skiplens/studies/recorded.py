"""The recorded verdicts: what each claim is known to give at each preset, shipped with the package."""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from skiplens.core.errors import InvalidInputError

FILE = "recorded.json"


def recorded_verdicts(preset: str, path: Path | None = None) -> dict[str, str]:
    """The recorded word of each claim (`study/item/claim`) at `preset`.

    Args:
        preset: Of the runs.
        path: A verdicts.json to compare with instead of the shipped record.
    """
    return shipped().get(preset, {}) if path is None else words_in(path)


def shipped() -> dict[str, dict[str, str]]:
    """The record of the package, by preset and claim."""
    return json.loads(files("skiplens.studies").joinpath(FILE).read_text("utf-8"))


def words_in(path: Path) -> dict[str, str]:
    """The word of each claim in a verdicts.json."""
    try:
        entries = json.loads(path.read_text("utf-8"))
        return {_name(entry): str(entry["verdict"]) for entry in entries}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(f"{path} does not hold verdicts ({error}). Give a verdicts.json.") from error


def _name(entry: Mapping[str, str]) -> str:
    return f"{entry['study']}/{entry['item']}/{entry['claim']}"
