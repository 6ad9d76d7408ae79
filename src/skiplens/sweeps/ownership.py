"""A folder of runs belongs to one preset: mixing two would mix small and large runs on one page."""

import json
from pathlib import Path

from skiplens.core.errors import InvalidInputError
from skiplens.core.files import write_content

NAME = "sweep.json"


def claim_folder(folder: Path | str, preset: str) -> None:
    """Note that `folder` holds runs of `preset`, or refuse it if it holds those of another one."""
    owner = owner_of(folder)
    if owner is None:
        write_content(Path(folder) / NAME, json.dumps({"preset": preset}) + "\n")
    elif owner != preset:
        raise InvalidInputError(
            f"{folder} holds runs of the preset {owner!r}, and {preset!r} was asked for. "
            "Give another folder with --out, or delete this one."
        )


def owner_of(folder: Path | str) -> str | None:
    """The preset whose runs are in `folder`, or None if nobody has claimed it."""
    note = Path(folder) / NAME
    try:
        return str(json.loads(note.read_text("utf-8"))["preset"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(f"{note} does not say which preset its folder is for ({error}). Delete it.") from error
