"""A reading as JSON for people and other programs; numbers that JSON lacks (inf, nan) are written as words."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch

from skiplens.readings import Provenance, Reading
from skiplens.readings.reading import KINDS

_TENSOR = {"dtype", "shape", "values"}


def to_json(reading: Reading) -> dict[str, Any]:
    """The kind, the version, the provenance and the values of `reading`."""
    return {
        "kind": reading.kind,
        "version": reading.version,
        "provenance": _plain(dataclasses.asdict(reading.provenance)),
        "values": _plain(reading.values()),
    }


def from_json(content: Mapping[str, Any]) -> Reading:
    """The reading that `to_json` wrote."""
    kind = KINDS[content["kind"]]
    values = kind.upgrade(_restored(content["values"]), content["version"])
    return kind(**values, provenance=Provenance.from_json(_restored(content["provenance"])))


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.")
        return {"dtype": name, "shape": list(value.shape), "values": _plain(value.flatten().tolist())}
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"float"}:
            return float(value["float"])
        if set(value) == _TENSOR:
            entries = torch.tensor(_restored(value["values"]), dtype=getattr(torch, value["dtype"]))
            return entries.reshape(value["shape"])
        return {key: _restored(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return tuple(_restored(entry) for entry in value)
    return value
