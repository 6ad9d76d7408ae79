"""Measured values that stay as they are, and in the words that a checkpoint can hold."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from skiplens.readings.provenance import Provenance
from skiplens.readings.reading import KINDS, Reading

_MARK = "$reading"


def settled(value: Any) -> Any:
    """The value with copies of its tensors on the CPU: a run goes on to change the weights that they may be."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Reading):
        return dataclasses.replace(value, **settled(value.values()))
    if isinstance(value, Mapping):
        return {name: settled(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return tuple(settled(entry) for entry in value)
    return value


def packed(value: Any) -> Any:
    """The value with a reading written as a mapping; everything else stays."""
    if not isinstance(value, Reading):
        return value
    return {_MARK: value.kind, "values": value.values(), "provenance": dataclasses.asdict(value.provenance)}


def unpacked(value: Any) -> Any:
    """The value that `packed` was given."""
    if not isinstance(value, dict) or _MARK not in value:
        return value
    return KINDS[value[_MARK]](**value["values"], provenance=Provenance.from_json(value["provenance"]))
