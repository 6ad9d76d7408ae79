"""The reading: a frozen record of named CPU arrays with the provenance that made it."""

import math
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Self, dataclass_transform

import numpy as np
import scipy
import torch
from torch import Tensor

from skiplens.base.errors import InvalidInputError
from skiplens.base.version import VERSION

KINDS: dict[str, type["Reading"]] = {}  # every kind of reading by its name; a file says which kind it holds

NOT_FINITE = "it is computed from numbers that are not finite, or from too few"
"""Why there is no number where a kind of reading gives no other reason."""


def lacks(value: Any) -> bool:
    """Whether a number is missing somewhere in a value."""
    if isinstance(value, Tensor):
        return (value.is_floating_point() or value.is_complex()) and bool(value.isnan().any())
    if isinstance(value, Mapping):
        return any(map(lacks, value.values()))
    return any(map(lacks, value)) if isinstance(value, tuple) else isinstance(value, float) and math.isnan(value)


def no_numbers(*shape: int) -> Tensor:
    """What a field holds that was not measured; of shape (0,) if not told otherwise."""
    return torch.zeros(shape or (0,), dtype=torch.float64)


@dataclass(frozen=True)
class Provenance:
    """Everything needed to take a reading again."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    device: str = "cpu"
    started: str = ""
    seconds: float = 0.0

    @classmethod
    def begin(cls, settings: Mapping[str, Any], seed: int | None, device: torch.device | str = "cpu") -> "Stopwatch":
        """Start the clock of a measurement; `.end()` gives its provenance."""
        started = datetime.now(UTC).isoformat("T", "seconds")
        return Stopwatch(cls(dict(settings), seed, versions(), str(device), started))

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The provenance that `dataclasses.asdict` wrote."""
        return cls(**dict(values))


class Stopwatch:
    """A provenance whose clock is running."""

    def __init__(self, provenance: Provenance) -> None:
        self._provenance = provenance
        self._start = time.perf_counter()

    def end(self) -> Provenance:
        """The provenance with the time since the start."""
        return replace(self._provenance, seconds=time.perf_counter() - self._start)


def versions() -> dict[str, str]:
    """Versions of what computes: Skiplens, Python, torch, NumPy, SciPy."""
    packages = {package.__name__: package.__version__ for package in (torch, np, scipy)}
    return {"skiplens": VERSION, "python": platform.python_version(), **packages}


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False, field_specifiers=(field,))
@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """Base of all readings; a kind `class PathSpectrum(Reading, kind="paths")` is a frozen dataclass without saying so.

    Fields are tensors (kept detached on the CPU), mappings from names to tensors, or plain values and tuples of them.
    A number that is not there is NaN, and `absences` says why.
    When a kind changes, its `version` goes up and `upgrade` brings old values to the new form; a field with a default
    needs no upgrade.
    """

    kind: ClassVar[str] = ""
    version: ClassVar[int] = 1
    may_lack: ClassVar[Mapping[str, str]] = {}
    """Why a field may have no number, where NaN stands in its place, by its name."""

    provenance: Provenance = field(default_factory=Provenance)

    def __init_subclass__(cls, kind: str = "", **kwargs: Any) -> None:
        """Make it a dataclass and register the kind under its name."""
        super().__init_subclass__(**kwargs)
        dataclass(frozen=True, kw_only=True, eq=False)(cls)
        if kind:
            if kind in KINDS and KINDS[kind].__qualname__ != cls.__qualname__:
                raise TypeError(f"Two kinds of reading are called {kind!r}: {KINDS[kind]} and {cls}.")
            cls.kind = kind
            KINDS[kind] = cls

    def __post_init__(self) -> None:
        """Bring tensors to the CPU, lists to tuples, and refuse what a file could not hold."""
        for entry in fields(self):
            if entry.name != "provenance":
                value = _settle(getattr(self, entry.name), f"{type(self).__name__}.{entry.name}")
                object.__setattr__(self, entry.name, value)

    @classmethod
    def upgrade(cls, values: dict[str, Any], version: int) -> dict[str, Any]:
        """Bring the values of a file written at `version` of this kind to the present form."""
        return values

    @property
    def absences(self) -> dict[str, str]:
        """Why there is no number, for each field that lacks one; a file holds the reason and no NaN."""
        return {name: self.may_lack.get(name, NOT_FINITE) for name, value in self.values().items() if lacks(value)}

    def values(self) -> dict[str, Any]:
        """The fields without the provenance."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "provenance"}


def _settle(value: Any, name: str) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu")
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return tuple(_settle(entry, name) for entry in value)
    if isinstance(value, Mapping):
        return {str(key): _settle(entry, f"{name}[{key!r}]") for key, entry in value.items()}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise InvalidInputError(
        f"{name} is a {type(value).__name__}; a reading holds tensors, numbers, words, tuples and mappings of them."
    )


class Measurement(Reading, kind="measurement"):
    """The reading of a measurement that has no kind of its own.

    Attributes:
        name: Of the function that measured.
        arrays: What it measured.

    Examples:
        >>> import torch
        >>> Measurement(name="norms", arrays={"squared": torch.ones(3)})["squared"].tolist()
        [1.0, 1.0, 1.0]
    """

    name: str
    arrays: Mapping[str, Tensor]

    def __getitem__(self, name: str) -> Tensor:
        """The array called `name`."""
        return self.arrays[name]

    def setting(self, name: str) -> Any:
        """The value of a setting of the run."""
        return self.provenance.settings[name]
