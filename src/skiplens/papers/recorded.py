"""The recorded verdicts: what each claim is known to give at each preset, shipped with the package."""

import json
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from skiplens.base.errors import InvalidInputError
from skiplens.base.files import write_content
from skiplens.sweeps.run import owner_of

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
    return json.loads(files("skiplens.papers").joinpath(FILE).read_text("utf-8"))


def words_in(path: Path) -> dict[str, str]:
    """The word of each claim in a verdicts.json."""
    try:
        entries = json.loads(path.read_text("utf-8"))
        return {_name(entry): str(entry["verdict"]) for entry in entries}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(f"{path} does not hold verdicts ({error}). Give a verdicts.json.") from error


def _name(entry: Mapping[str, str]) -> str:
    return f"{entry['study']}/{entry['item']}/{entry['claim']}"


def record(folders: Sequence[Path]) -> None:
    """Put verdicts into the record of the package, beside those of other claims and presets.

    A claim whose verdicts differ between the folders (runs with other seeds) is one that the preset does not decide: it
    is recorded as not attempted.
    """
    presets = {owner_of(folder) for folder in folders}
    preset = presets.pop() if len(presets) == 1 else None
    if preset is None:
        raise InvalidInputError(
            f"{', '.join(map(str, folders))} are not folders of skiplens reproduce with one preset."
        )
    found: dict[str, set[str]] = {}
    for folder in folders:
        for name, word in words_in(folder / "verdicts.json").items():
            found.setdefault(name, set()).add(word)
    agreed = {name: words.pop() if len(words) == 1 else "not attempted" for name, words in found.items()}
    words_by_preset = shipped()
    words_by_preset[preset] = words_by_preset.get(preset, {}) | agreed
    write_content(Path(__file__).with_name(FILE), json.dumps(words_by_preset, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    record([Path(folder) for folder in sys.argv[1:]])
