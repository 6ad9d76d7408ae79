"""Frozen settings that name a run: hashed, read from JSON or words, printed as their difference from the defaults."""

import contextlib
import dataclasses
import hashlib
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, Self, Union, get_args, get_origin

from skiplens.base.errors import SettingsError, refuse_if, require_known


def option(default: Any, help: str, **metadata: Any) -> Any:
    """A field of a `Settings` with its help text; the flag, the JSON key and the docs all come from it."""
    return field(default=default, metadata={"help": help, **metadata})


@typing.dataclass_transform(frozen_default=True, field_specifiers=(field,))
@dataclass(frozen=True)
class Settings:
    """Base of all settings: a subclass is a frozen dataclass without saying so, and all its fields have defaults.

    The key of a run is a hash of the class name and of the values that differ from their defaults, so a new option
    with a default leaves old keys as they are. (For the same reason a default must never be changed: add an option.)

    Examples:
        >>> class Probe(Settings):
        ...     depth: int = option(10, "residual blocks")
        >>> Probe.from_json({"depth": "3"}).difference()
        {'depth': 3}
    """

    def __init_subclass__(cls, **words: Any) -> None:
        super().__init_subclass__(**words)
        dataclass(frozen=True)(cls)

    def __post_init__(self) -> None:
        """Bring every value to its declared type, or refuse it by name."""
        hints = typing.get_type_hints(type(self))
        for entry in fields(self):
            value = coerce(getattr(self, entry.name), hints[entry.name], f"{type(self).__name__}.{entry.name}")
            object.__setattr__(self, entry.name, value)

    def difference(self) -> dict[str, Any]:
        """The values that differ from the defaults, in the order of the fields."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != _default(f)}

    def key(self) -> str:
        """Sixteen hexadecimal digits that name these settings, the same on every machine."""
        named = [type(self).__name__, plain(self.difference())]
        canonical = json.dumps(named, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """All values in words that JSON has."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Settings from a decoded JSON object; an unknown key is an error that offers the nearest ones."""
        if not isinstance(values, Mapping):
            raise SettingsError(f"{cls.__name__} wants a JSON object, got {type(values).__name__}.")
        known = [f.name for f in fields(cls)]
        for name in values:
            require_known(name, known, f"{cls.__name__} has no setting {name!r}.", SettingsError)
        return cls(**dict(values))

    def __str__(self) -> str:
        """The class and what differs from the defaults."""
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.difference().items())})"


def coerce(value: Any, kind: Any, name: str) -> Any:
    """Bring `value` (text from a flag, or a JSON value) to the type `kind`, or say what was wanted."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _coerce_union(value, get_args(kind), name)
    if origin is Literal:
        return _coerce_choice(value, get_args(kind), name)
    if origin is tuple:
        return _coerce_tuple(value, get_args(kind), name)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and issubclass(kind, Settings):
        return value if isinstance(value, kind) else kind.from_json(value)
    return _coerce_plain(value, kind, name)


def plain(value: Any) -> Any:
    """The value in words that JSON has: tuples become lists, settings become objects."""
    if isinstance(value, Settings):
        return plain(value.difference())
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [plain(entry) for entry in value]
    return value


def _default(entry: dataclasses.Field[Any]) -> Any:
    if entry.default is not MISSING:
        return entry.default
    if entry.default_factory is not MISSING:
        return entry.default_factory()
    raise SettingsError(f"The setting {entry.name!r} has no default; every setting needs one.")


def _coerce_union(value: Any, kinds: tuple[Any, ...], name: str) -> Any:
    if type(None) in kinds and (value is None or value == "none"):
        return None
    problems = []
    for kind in (k for k in kinds if k is not type(None)):
        try:
            return coerce(value, kind, name)
        except SettingsError as error:
            problems.append(error)
    raise problems[0]


def _coerce_choice(value: Any, choices: tuple[Any, ...], name: str) -> Any:
    for choice in choices:
        if value == choice or (isinstance(value, str) and value == str(choice)):
            return choice
    raise SettingsError(f"{name} must be one of {', '.join(map(str, choices))}; got {value!r}.")


def _coerce_tuple(value: Any, kinds: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    if isinstance(value, str):
        value = [part for part in value.split(",") if part]
    if not isinstance(value, list | tuple):
        raise SettingsError(f"{name} must be a list of values; got {value!r}.")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    refuse_if(len(kinds) != len(value), f"{name} must have {len(kinds)} values; got {len(value)}.", SettingsError)
    return tuple(coerce(part, kind, name) for part, kind in zip(value, kinds, strict=True))


_WORDS_FOR_BOOL = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _coerce_plain(value: Any, kind: Any, name: str) -> Any:
    if kind is bool and isinstance(value, str) and value.lower() in _WORDS_FOR_BOOL:
        return _WORDS_FOR_BOOL[value.lower()]
    if kind in (int, float) and isinstance(value, str):
        with contextlib.suppress(ValueError):  # text that is no number is refused below
            value = kind(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise SettingsError(f"{name} must be {kind.__name__}; got {value!r}.")
