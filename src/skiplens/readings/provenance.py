"""Where a reading comes from: settings, seed, versions, device, time."""

import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np
import scipy
import torch

from skiplens.core.version import VERSION


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
        return Stopwatch(
            cls(dict(settings), seed, versions(), str(device), datetime.now(UTC).isoformat("T", "seconds"))
        )

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
        p = self._provenance
        return Provenance(p.settings, p.seed, p.versions, p.device, p.started, time.perf_counter() - self._start)


def versions() -> dict[str, str]:
    """Versions of what computes: Skiplens, Python, torch, NumPy, SciPy."""
    return {
        "skiplens": VERSION,
        "python": platform.python_version(),
        **{package.__name__: package.__version__ for package in (torch, np, scipy)},
    }
