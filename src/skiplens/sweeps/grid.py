"""All combinations of a few values of a few settings."""

import dataclasses
import itertools
from collections.abc import Iterable
from typing import Any, TypeVar

from skiplens.core.errors import SettingsError
from skiplens.core.nearest import did_you_mean
from skiplens.core.settings import Settings

S = TypeVar("S", bound=Settings)


def grid(base: S, **axes: Iterable[Any]) -> tuple[S, ...]:
    """`base` with every combination of the given values; the last axis changes fastest.

    Examples:
        >>> from skiplens.core.settings import Settings, option
        >>> @dataclasses.dataclass(frozen=True)
        ... class Probe(Settings):
        ...     depth: int = option(1, "residual blocks")
        ...     seed: int = option(0, "names every draw")
        >>> [(probe.depth, probe.seed) for probe in grid(Probe(), depth=(5, 10), seed=range(2))]
        [(5, 0), (5, 1), (10, 0), (10, 1)]
    """
    known = [field.name for field in dataclasses.fields(base)]
    for name in axes:
        if name not in known:
            raise SettingsError(f"{type(base).__name__} has no setting {name!r}. {did_you_mean(name, known)}")
    combinations = itertools.product(*(tuple(values) for values in axes.values()))
    return tuple(dataclasses.replace(base, **dict(zip(axes, values, strict=True))) for values in combinations)
