"""The recorded verdicts: what each claim is known to give at each preset, shipped with the package.

To record the verdicts of a folder that `skiplens reproduce` wrote: `python -m skiplens.studies.recorded FOLDER`.
"""

import json
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from skiplens.core.errors import InvalidInputError
from skiplens.core.files import write_content
from skiplens.sweeps.ownership import owner_of

FILE = "recorded.json"


def recorded_verdicts(preset: str, path: Path | None = None) -> dict[str, str]:
    """The recorded word of each claim (`study/item/claim`) at `preset`.

    Args:
        preset: Of the runs.
        path: A verdicts.json to compare with instead of the shipped record.
    """
    return _shipped().get(preset, {}) if path is None else _from_verdicts(path)


def record(folder: Path) -> None:
    """Put the verdicts in `folder` into the record of the package, beside those of other claims and presets."""
    preset = owner_of(folder)
    if preset is None:
        raise InvalidInputError(f"{folder} was not written by skiplens reproduce. Give its --out folder.")
    words = _shipped()
    words[preset] = dict(sorted((words.get(preset, {}) | _from_verdicts(folder / "verdicts.json")).items()))
    write_content(Path(__file__).with_name(FILE), json.dumps(words, indent=1, sort_keys=True) + "\n")


def _shipped() -> dict[str, dict[str, str]]:
    return json.loads(files("skiplens.studies").joinpath(FILE).read_text("utf-8"))


def _from_verdicts(path: Path) -> dict[str, str]:
    try:
        entries = json.loads(path.read_text("utf-8"))
        return {_name(entry): str(entry["verdict"]) for entry in entries}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(f"{path} does not hold verdicts ({error}). Give a verdicts.json.") from error


def _name(entry: Mapping[str, str]) -> str:
    return f"{entry['study']}/{entry['item']}/{entry['claim']}"


if __name__ == "__main__":
    record(Path(sys.argv[1]))
