"""How settings are declared and checked: a frozen class whose fields know their kind, bounds and default.

A library would do more, and every command would wait for it: loading one took as long as the command's own work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, dataclass_transform, get_args, get_origin, get_type_hints

Check = Callable[[Any], Any]
_WHOLE = re.compile(r"\s*([+-]?\d+(?:_\d+)*)(?:\.0+)?\s*", re.ASCII)
_MOST_DIGITS = 100
_TRUTH = {
    **dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("0", "false", "f", "no", "n", "off"), False),
}


class Before(NamedTuple):
    """Marks what is done to a value before its kind is checked."""

    check: Check


class After(NamedTuple):
    """Marks what is done to a value of the right kind."""

    check: Check


class SecretStr:
    """A text that shows in no output; whoever needs it asks for it by name."""

    def __init__(self, value: str) -> None:
        self._value = value

    def get_secret_value(self) -> str:
        """Return the text."""
        return self._value

    def __repr__(self) -> str:
        return "SecretStr('**********')" if self._value else "SecretStr('')"

    def __str__(self) -> str:
        return "**********" if self._value else ""

    def __len__(self) -> int:
        return len(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretStr) and other.get_secret_value() == self._value

    def __hash__(self) -> int:
        return hash(self._value)


class UnfitError(ValueError):
    """A value is not of its field's kind, or out of its bounds: what would be right, the field tells."""


class SettingsError(ValueError):
    """Some values do not fit: the reason of each by its name. What was given is not repeated, it may be secret."""

    def __init__(self, reasons: Mapping[str, ValueError]) -> None:
        self.reasons = dict(reasons)
        super().__init__("; ".join(f"{name}: {reason or 'does not fit'}" for name, reason in self.reasons.items()))


@dataclass(frozen=True)
class Field:
    """One setting: what it means, what it is without being set, and what fits it."""

    default: Any = None
    description: str = ""
    default_factory: Callable[[dict[str, Any]], Any] | None = None
    bounds: tuple[int, int] | None = None
    annotation: Any = None
    check: Check = lambda value: value

    def of_kind(self, annotation: Any) -> Field:
        """Return the field as its class declares it, with all its checks."""
        check = _check_of(annotation)
        bounded = _chain(check, _within(*self.bounds)) if self.bounds else check
        plain = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
        return Field(self.default, self.description, self.default_factory, self.bounds, plain, bounded)

    def fill(self, known: dict[str, Any]) -> Any:
        """Return what it is without being set, given the settings before it."""
        return self.check(self.default_factory(known) if self.default_factory else self.default)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Frozen:
    """A class of settings: made of values by name, each checked, and never changed again."""

    def __init__(self, **given: Any) -> None:
        known: dict[str, Any] = {}
        wrong: dict[str, ValueError] = {
            name: UnfitError("is no setting") for name in given.keys() - fields_of(type(self))
        }
        for name, field in fields_of(type(self)).items():
            try:
                known[name] = field.check(given[name]) if name in given else field.fill(known)
            except KeyError:  # the setting that its default follows is itself wrong
                wrong[name] = UnfitError()
            except ValueError as error:
                wrong[name] = error
        if wrong:
            raise SettingsError(wrong)
        self.__dict__.update(known)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} cannot be changed: settings are frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name} cannot be changed: settings are frozen")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(repr(self))


_fields: dict[type[Frozen], dict[str, Field]] = {}


def fields_of(model: type[Frozen]) -> dict[str, Field]:
    """Return a class's fields by name, in the order in which it declares them."""
    if model not in _fields:
        hints = get_type_hints(model, include_extras=True)
        _fields[model] = {name: _declared(model, name).of_kind(kind) for name, kind in hints.items()}
    return _fields[model]


def _declared(model: type[Frozen], name: str) -> Field:
    declared = getattr(model, name)
    return declared if isinstance(declared, Field) else Field(declared)


def _check_of(kind: Any) -> Check:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        before = [mark.check for mark in reversed(args[1:]) if isinstance(mark, Before)]
        after = [mark.check for mark in args[1:] if isinstance(mark, After)]
        return _chain(*before, _check_of(args[0]), *after)
    if origin in (Union, UnionType):
        [some] = [each for each in args if each is not NoneType]
        return _or_none(_check_of(some))
    if origin is Literal:
        return _one_of(args)
    return _KINDS[origin or kind]


def _chain(*checks: Check) -> Check:
    def check(value: Any) -> Any:
        for each in checks:
            value = each(value)
        return value

    return check


def _or_none(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _one_of(choices: tuple[Any, ...]) -> Check:
    def check(value: Any) -> Any:
        if value not in choices:
            raise UnfitError
        return value

    return check


def _within(low: int, high: int) -> Check:
    def check(value: int | None) -> int | None:
        if value is not None and not low <= value <= high:
            raise UnfitError
        return value

    return check


def _whole(value: Any) -> int:
    if isinstance(value, str) and len(value) <= _MOST_DIGITS and (digits := _WHOLE.fullmatch(value)):
        return int(digits[1])
    if isinstance(value, int | float) and not isinstance(value, bool) and value == int(value):
        return int(value)
    raise UnfitError


def _truth(value: Any) -> bool:
    found = _TRUTH.get(str(value).lower()) if isinstance(value, str | int) else None
    if found is None:
        raise UnfitError
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise UnfitError
    return value


def _path(value: Any) -> Path:
    if not isinstance(value, str | Path):
        raise UnfitError
    return Path(value)


def _secret(value: Any) -> SecretStr:
    return value if isinstance(value, SecretStr) else SecretStr(_text(value))


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise UnfitError
    return tuple(map(_text, value))


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UnfitError
    return value


_KINDS: dict[Any, Check] = {
    int: _whole,
    bool: _truth,
    str: _text,
    Path: _path,
    SecretStr: _secret,
    tuple: _texts,
    Mapping: _mapping,
}
