"""The reading: a frozen record of named CPU arrays with the provenance that made it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
import torch

from skiplens.core.errors import InvalidInputError
from skiplens.readings.provenance import Provenance

KINDS: dict[str, type["Reading"]] = {}
"""Every kind of reading by its name; a file says which kind it holds."""

PLAIN = (str, int, float, bool, type(None))


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
    if isinstance(value, PLAIN):
        return value
    raise InvalidInputError(
        f"{name} is a {type(value).__name__}; a reading holds tensors, numbers, words, tuples and mappings of them."
    )
