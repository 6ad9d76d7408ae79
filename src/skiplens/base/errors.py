"""The named errors of Skiplens: each says what came, what was wanted and what to do."""

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


class SkiplensError(Exception):
    """Anything Skiplens refuses to do; the message is meant for a person."""


class InvalidInputError(SkiplensError, ValueError):
    """An argument, a tensor or a file does not have the form that was asked for."""


class NoTargetsError(InvalidInputError):
    """The data has inputs alone where targets are needed."""


class NotReachedError(InvalidInputError):
    """No derivative of the loss comes to the chosen parameters."""


class CoupledSamplesError(InvalidInputError):
    """Samples cannot be looked at one by one: they depend on each other, or are not the first axis."""


class SettingsError(InvalidInputError):
    """A setting has an unknown name or a value of the wrong kind."""


class ModelSpecError(InvalidInputError):
    """A model could not be made from the words that name it."""


class UnsafeFileError(InvalidInputError):
    """A file would run code when loaded, so it was not loaded."""


class NotExportableError(SkiplensError):
    """`torch.export` does not accept the model, so its graph cannot be read."""


class NotResidualError(SkiplensError):
    """The model has no residual join where one is needed."""


class NoFrozenFormError(SkiplensError):
    """An operation is not a frozen factor times its argument, so the signal is no sum over paths."""


class NotTwiceDifferentiableError(SkiplensError):
    """An operation of the model or the loss has no second derivative in torch."""


class DataError(SkiplensError):
    """A data set is missing, broken or not what its checksum says."""


class BrokenFileError(SkiplensError):
    """A stored file is truncated, damaged or was not written by Skiplens."""


class TooNewFileError(SkiplensError):
    """A stored file was written by a newer Skiplens than this one."""


class MissingDependencyError(SkiplensError, ImportError):
    """An optional package is needed for what was asked and is not installed."""


class TooLargeError(SkiplensError, MemoryError):
    """What was asked does not fit in the memory that may be used."""


class ClusterError(SkiplensError):
    """A cluster cannot be reached, was lost, or runs another Skiplens."""


class DidNotConverge(SkiplensError, ArithmeticError):  # noqa: N818 - named after what happened, as in linear_operator
    """An iteration stopped before it reached the wanted accuracy."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that offers the names nearest to `name`, or lists them all when none is near."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return f"Known names: {', '.join(known)}." if known else "There are no names to choose from."


def pick(known: Mapping[str, T], name: str, problem: str, kind: type[SkiplensError] = InvalidInputError) -> T:
    """The entry called `name`, or an error that tells the problem and the nearest names."""
    require_known(name, known, problem, kind)
    return known[name]


def require_known(
    name: str, known: Collection[str], problem: str, kind: type[SkiplensError] = InvalidInputError
) -> None:
    """Refuse a name that is not among the known ones, with the problem and the nearest names."""
    if name not in known:
        raise kind(f"{problem} {did_you_mean(str(name), known)}")


def refuse_if(problem: object, message: str, kind: type[Exception] = InvalidInputError) -> None:
    """Raise the error with this message where there is a problem."""
    if problem:
        raise kind(message)
