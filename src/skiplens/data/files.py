"""Data from files: arrays, tables, text with a tokenizer, and data sets that Hugging Face saved."""

import csv
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from skiplens.base.errors import BrokenFileError, DataError, InvalidInputError, UnsafeFileError, refuse_if
from skiplens.base.files import is_file, is_folder, user_path
from skiplens.base.optional_imports import optional_import
from skiplens.graph.batch import TARGETS, Batch, as_batch
from skiplens.graph.inputs import first_line

LENGTH = 128  # tokens of a sample of text
MOST_CHARACTERS = 2**22  # of a text: more samples than anything looks at
FILES = (".npz", ".pt", ".pth", ".safetensors", ".csv", ".txt")
_ANSWERS = (*TARGETS, "y", "class", "arr_1")  # names of targets in files
_QUESTIONS = ("x", "inputs", "input", "features", "images", "data", "arr_0")  # one of these is the first argument


def load_file(
    path: str | os.PathLike[str], *, tokenizer: str | os.PathLike[str] | None = None, length: int = LENGTH
) -> Batch:
    """The batch in a file: `.npz`, `.pt` (tensors alone), `.safetensors`, `.csv` (a table), or text with a tokenizer.

    Arrays with names are arguments of the model, except for the targets (`labels`, `targets`, `y`) and for a single
    one called `x` or `inputs`. A table has its targets in the column of such a name, else in the last. A text is cut
    into samples of `length` tokens, and the target of a token is the next one.

    Args:
        path: The file.
        tokenizer: A folder on this machine with the tokenizer of a text.
        length: Tokens of a sample of text.
    """
    path = user_path(path)
    refuse_if(not is_file(path), f"There is no file {path}.", DataError)
    if tokenizer is not None:
        return _of_text(path, tokenizer, length)
    refuse_if(path.suffix not in FILES, f"{path} is a file of a kind that is not read here; wanted {', '.join(FILES)}.")
    if path.suffix == ".txt":
        raise InvalidInputError(f"{path} is text, which a model takes as tokens. Name a tokenizer: a folder with one.")
    if path.suffix == ".csv":
        return _of_table(path)
    if path.suffix == ".safetensors":
        return _of_content(read_safetensors(path), path)
    return _of_content(_read_arrays(path) if path.suffix == ".npz" else read_checkpoint(path), path)


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name."""
    safetensors = optional_import("safetensors.torch", "reading .safetensors weights", "safetensors")
    try:
        return safetensors.load_file(path)
    except Exception as error:  # SafetensorError, and what torch says to types and sizes that a foreign file declares
        raise BrokenFileError(f"{path} is not a whole safetensors file: {first_line(error)}.") from error


def read_checkpoint(path: Path) -> Any:
    """What `torch.save` wrote, where it is tensors and plain values alone."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UnsafeFileError(
            f"{path} was refused: loading it would run code that it brings along, or it is no checkpoint at all. "
            "Save the weights alone, with torch.save(model.state_dict(), FILE) or as safetensors."
        ) from error
    except Exception as error:  # a cut or foreign file makes the unpickler stumble in any way
        raise BrokenFileError(
            f"{path} is not a whole checkpoint: {type(error).__name__}: {first_line(error)}"
        ) from error


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:  # NumPy leaves a foreign one open
            return {name: arrays[name] for name in arrays.files}
    except Exception as error:  # a cut or foreign file, or objects that would run code
        raise BrokenFileError(f"{path} is not a whole file of plain arrays: {first_line(error)}") from error


def _of_content(content: Any, path: Path) -> Batch:
    """The batch that was stored: a mapping by the names in it, anything else as it would be handed over."""
    if isinstance(content, Mapping):
        answer = next((name for name in _ANSWERS if name in content), None)
        rest = [name for name in content if name != answer]
        if len(rest) == 1 and str(rest[0]).lower() in _QUESTIONS:
            content = content[rest[0]], content.get(answer)
        elif answer is not None and answer not in TARGETS:
            content = {("targets" if name == answer else name): value for name, value in content.items()}
    return as_batch(content, str(path))


def _of_table(path: Path) -> Batch:
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            first = file.readline()
            file.seek(0)
            rows = [row for row in csv.reader(file, delimiter=max(",;\t", key=first.count)) if row]
        except (csv.Error, UnicodeDecodeError) as error:
            raise BrokenFileError(f"{path} is not a table: {first_line(error)}") from error
    has_header = bool(rows) and not any(_is_number(cell) for cell in rows[0])
    head = rows[0] if rows else []
    names = [name.strip() if has_header else f"column {number}" for number, name in enumerate(head, start=1)]
    rows = rows[has_header:]
    if not rows or len(names) < 2:
        raise InvalidInputError(f"{path} has {len(rows)} rows and {len(names)} columns; wanted features and a target.")
    for number, row in enumerate(rows, start=1 + has_header):
        if len(row) != len(names):
            raise BrokenFileError(f"{path} has {len(row)} cells in line {number} and {len(names)} columns.")
    place = next((place for place, name in enumerate(names) if name.lower() in _ANSWERS), len(names) - 1)
    columns = [[row[n].strip() for row in rows] for n in range(len(names))]
    target = columns.pop(place)
    names.pop(place)
    features = [_numbers(column, name, path) for column, name in zip(columns, names, strict=True)]
    return Batch(torch.stack(features, dim=1), _target(target))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(column: list[str], name: str, path: Path) -> Tensor:
    wrong = next((cell for cell in column if not _is_number(cell)), None)
    if wrong is not None:
        raise InvalidInputError(
            f"The column {name!r} of {path} holds {wrong!r}, which is no number. Write categories as numbers or as "
            "columns of 0 and 1, and fill in what is missing."
        )
    return torch.tensor([float(cell) for cell in column])


def _target(column: list[str]) -> Tensor:
    """Real numbers where one is written with a point; else classes, numbered in their order if they are words."""
    if all(_is_number(cell) for cell in column):
        whole = all(cell.lstrip("+-").isdigit() and abs(float(cell)) < 2**62 for cell in column)
        return torch.tensor([int(cell) if whole else float(cell) for cell in column])
    classes = sorted(set(column))
    return torch.tensor([classes.index(cell) for cell in column])


def load_tokenizer(folder: str | os.PathLike[str]) -> Any:
    """The tokenizer in a folder of this machine; nothing is downloaded."""
    transformers = optional_import("transformers", "reading text with a tokenizer")
    if not is_folder(user_path(folder)):
        raise DataError(f"There is no folder {folder} with a tokenizer. Write it: tokenizer.save_pretrained(FOLDER).")
    try:
        return transformers.AutoTokenizer.from_pretrained(os.fspath(user_path(folder)), local_files_only=True)
    except Exception as error:
        raise InvalidInputError(f"{folder} holds no tokenizer that can be loaded: {first_line(error)}") from error


def _of_text(path: Path, folder: str | os.PathLike[str], most: int) -> Batch:
    tokenizer = load_tokenizer(folder)
    with path.open(encoding="utf-8", errors="replace") as file:
        text = file.read(MOST_CHARACTERS)
    tokens = torch.tensor(tokenizer(text, verbose=False)["input_ids"], dtype=torch.int64)
    length = min(most, len(tokens))
    refuse_if(length < 2, f"{path} has {len(tokens)} tokens; wanted 2 at least, and better thousands.")
    rows = tokens[: len(tokens) // length * length].reshape(-1, length)
    return as_batch({"input_ids": rows, "labels": rows}, str(path))


class SavedDataset:
    """The rows of a data set that `datasets` saved in a folder, with the columns that a model takes."""

    def __init__(
        self, folder: str, *, tokenizer: str | None = None, taken: tuple[str, ...] | None = None, length: int = LENGTH
    ) -> None:
        """Open the folder; `taken` names the arguments of the model, and a text column goes through the tokenizer.

        Texts of more than `length` tokens are cut.
        """
        datasets = optional_import("datasets", f"reading the saved data set {folder}")
        if not is_folder(user_path(folder)):
            raise DataError(f"There is no folder {folder}. Save a data set with dataset.save_to_disk(FOLDER).")
        try:
            rows = datasets.load_from_disk(os.fspath(user_path(folder)))
        except Exception as error:
            raise BrokenFileError(f"{folder} holds no data set that was saved: {first_line(error)}") from error
        if isinstance(rows, Mapping):  # splits by name
            rows = rows.get("train", next(iter(rows.values())))
        self.rows, self.taken, self.length = rows, taken, length
        self.tokenizer = None if tokenizer is None else load_tokenizer(tokenizer)
        self.column_names = tuple(self[0])
        if not any(name not in TARGETS for name in self.column_names):
            raise InvalidInputError(
                f"Of the columns {', '.join(rows.column_names)} of {folder} the model takes none. Rename them to its "
                "arguments, or name a tokenizer for a column of text."
            )

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One sample: the arguments of the model, and its labels."""
        row = dict(self.rows[index])
        text = next((value for value in row.values() if isinstance(value, str)), None)
        if self.tokenizer is not None and text is not None:
            row |= dict(self.tokenizer(text, truncation=True, max_length=self.length))
        kept = {name for name in row if self.taken is None or name in self.taken or name in TARGETS}
        return {name: value for name, value in row.items() if name in kept and not isinstance(value, str)}
