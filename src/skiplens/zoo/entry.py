"""An entry of the zoo: a network's options, how it is built, what is said of it."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from torch import nn

from skiplens.base import Randomness, Settings, SettingsError


class NetworkOptions(Settings):
    """Base of the options of a network; a field says its lower limit with `option(..., minimum=1)`."""

    def __post_init__(self) -> None:
        """Bring every value to its declared type and refuse those below their limits."""
        super().__post_init__()
        for entry in fields(self):
            value, minimum = getattr(self, entry.name), entry.metadata.get("minimum")
            values = value if isinstance(value, tuple) else (value,)
            if minimum is not None and not all(part >= minimum for part in values):
                raise SettingsError(f"{type(self).__name__}.{entry.name} must be at least {minimum}; got {value}.")

    @abstractmethod
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""


@dataclass(frozen=True)
class Entry:
    """A network of the zoo: how to build it and what to say about it."""

    name: str
    description: str
    study: str
    """The study of the paper that the network comes from."""
    options: type[NetworkOptions]
    builder: Callable[[Any, Randomness], nn.Module]
    stream: str | None = None
    """Names the random stream of the weights, the network's name if not given; networks that a paper compares weight by
    weight share one."""

    @property
    def example_input_shape(self) -> tuple[int, ...]:
        """The shape of one sample for the network with its default options."""
        return self.options().input_shape()

    def settings(self, options: Mapping[str, Any]) -> NetworkOptions:
        """The options of the network with these values, which may be text; an unknown one is an error."""
        try:
            return self.options.from_json(options)
        except SettingsError as error:
            raise SettingsError(f"zoo:{self.name}: {error}") from None

    def build(self, randomness: Randomness, options: Mapping[str, Any]) -> nn.Module:
        """The network with these options and weights from this randomness."""
        return self.builder(self.settings(options), randomness.child("zoo", self.stream or self.name))
