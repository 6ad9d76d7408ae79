"""Put verdicts into the record that is shipped with the package: `python tools/record_verdicts.py FOLDER …`.

The folders are those of `skiplens reproduce` with one preset; verdicts of other claims and presets stay.
"""

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from skiplens.base.errors import InvalidInputError
from skiplens.base.files import write_content
from skiplens.papers.reproduction import shipped_record, words_in
from skiplens.papers.study import VARIES
from skiplens.sweeps.run import owner_of


def record(folders: Sequence[Path]) -> None:
    """Write the verdicts of the folders into the record.

    A claim whose verdicts differ between the folders (runs with other seeds) is one that the preset does not decide: it
    is recorded as varying, and raises an alarm in every later run.
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
    agreed = {name: words.pop() if len(words) == 1 else VARIES for name, words in found.items()}
    join_record(preset, agreed)


def join_record(preset: str, words: Mapping[str, str], without: Collection[str] = ()) -> None:
    """Put words by claim into the record of a preset, and take some out; those of other claims stay."""
    words_by_preset = shipped_record()
    kept = {name: word for name, word in words_by_preset.get(preset, {}).items() if name not in without}
    words_by_preset[preset] = {**kept, **words}
    place = Path(str(files("skiplens.papers").joinpath("recorded.json")))
    write_content(place, json.dumps(words_by_preset, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    record([Path(folder) for folder in sys.argv[1:]])
