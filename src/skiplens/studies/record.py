"""Record the verdicts of folders that `skiplens reproduce` wrote: `python -m skiplens.studies.record FOLDER …`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from skiplens.core.errors import InvalidInputError
from skiplens.core.files import write_content
from skiplens.studies.recorded import FILE, shipped, words_in
from skiplens.sweeps.ownership import owner_of


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
