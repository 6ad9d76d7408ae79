"""What one run of a sweep measured: arrays by name; its settings are in the provenance."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skiplens.core.axes import Tensor
from skiplens.readings.reading import Reading


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
