"""What all networks of the zoo have in common: options that know their limits and the shape of an input."""

from abc import abstractmethod
from dataclasses import dataclass, fields

from skiplens.core.errors import SettingsError
from skiplens.core.settings import Settings


@dataclass(frozen=True)
class NetworkOptions(Settings):
    """Base of the options of a network; a field says its lower limit with `option(..., minimum=1)`."""

    def __post_init__(self) -> None:
        """Bring every value to its declared type and refuse those below their limits."""
        super().__post_init__()
        for entry in fields(self):
            self._require_at_least(entry.name, entry.metadata.get("minimum"))

    @abstractmethod
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""

    def _require_at_least(self, name: str, minimum: float | None) -> None:
        value = getattr(self, name)
        values = value if isinstance(value, tuple) else (value,)
        if minimum is not None and not all(part >= minimum for part in values):
            raise SettingsError(f"{type(self).__name__}.{name} must be at least {minimum}; got {value}.")
