"""How a setting is declared: its tier, meaning, default and bounds; and how its value is shown."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, cast

from annotated_types import Ge, Le
from pydantic import Field, SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from relevo.core.logs import scrub

Tier = Literal["everyday", "tuning", "expert"]
TIERS: dict[Tier, str] = {
    "everyday": "what an installation decides",
    "tuning": "for load and habits of your own",
    "expert": "seldom turned, and with care",
}
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


class Theme(BaseSettings):
    """Settings that belong together; they are checked as part of all `Settings`."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        hide_input_in_errors=True,
        enable_decoding=False,
        defer_build=True,
    )


def _declare(tier: Tier, meaning: str, default: Any = None) -> Any:
    known: dict[str, Any] = {"description": meaning, "json_schema_extra": {"tier": tier}}
    return Field(default_factory=default, **known) if callable(default) else Field(default, **known)


# Each takes the setting's meaning and its default.
everyday = partial(_declare, "everyday")
tuning = partial(_declare, "tuning")
expert = partial(_declare, "expert")


def between(low: int, high: int) -> Any:
    """Return what keeps a number within bounds, which fit it as well."""
    return Field(ge=low, le=high)


class Derived(NamedTuple):
    """A default that follows from settings that were checked before it."""

    derive: Callable[[dict[str, Any]], Any]
    says: str
    """How it follows, in words."""
    nominal: Any = None
    """The default, if no other setting changes it."""

    def __call__(self, data: dict[str, Any]) -> Any:
        """Return the default that fits the settings validated so far."""
        return self.derive(data)

    def __str__(self) -> str:
        return self.says


def ceiling(nominal: int, of: str, part: int = 1) -> Derived:
    """Return a default that gives way: `nominal`, but never more than a `part`-th of the setting `of`."""
    share = of.upper() if part == 1 else f"{of.upper()} / {part}"
    return Derived(lambda data: min(nominal, int(data[of]) // part), f"{nominal}, at most {share}", nominal)


def of_lease(nominal: int, part: int) -> Derived:
    """Return a default that fits into a part of the lease."""
    return ceiling(nominal, "outbox_lease_duration_ms", part)


def tier_of(field: FieldInfo) -> Tier:
    """Return a setting's tier."""
    return cast("Tier", cast("dict[str, Any]", field.json_schema_extra)["tier"])


def bounds_of(field: FieldInfo) -> tuple[int, int] | None:
    """Return the least and the greatest number that fit a setting, if it is a number."""
    low = [mark.ge for mark in field.metadata if isinstance(mark, Ge)]
    high = [mark.le for mark in field.metadata if isinstance(mark, Le)]
    return (cast("int", low[0]), cast("int", high[0])) if low and high else None


def show(value: object) -> str:
    """Return a value as one would write it, without what is secret in it."""
    match value:
        case None:
            return "not set"
        case SecretStr():
            return "set"
        case bool():
            return "true" if value else "false"
        case tuple():
            return scrub(",".join(map(str, value)))
        case _:
            return scrub(str(value))
