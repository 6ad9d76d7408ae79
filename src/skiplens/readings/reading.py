"""The reading: a frozen record of named CPU arrays with the provenance that made it."""

import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Self

import numpy as np
import scipy
import torch
from torch import Tensor

from skiplens.base.errors import InvalidInputError
from skiplens.base.version import VERSION

KINDS: dict[str, type["Reading"]] = {}  # every kind of reading by its name; a file says which kind it holds


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """Base of all readings; a kind is a frozen dataclass `class PathSpectrum(Reading, kind="paths")`.

    Fields are tensors (kept detached on the CPU), mappings from names to tensors, or plain values and tuples of them.
    When a kind changes, its `version` goes up and `upgrade` brings old values to the new form; a field with a default
    needs no upgrade.
    """

    kind: ClassVar[str] = ""
    version: ClassVar[int] = 1

    provenance: Provenance = field(default_factory=Provenance)

    def __init_subclass__(cls, kind: str = "", **kwargs: Any) -> None:
        """Register the kind under its name."""
        super().__init_subclass__(**kwargs)
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


@dataclass(frozen=True, kw_only=True, eq=False)
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
