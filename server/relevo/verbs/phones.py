"""Verbs about one phone: register and forget it, log it out, report taps, and what it asks for and got."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row

from relevo.access import phones
from relevo.access.phones import DeviceRules, NotAllowedError, Registered
from relevo.client import attributes as app_attributes
from relevo.client import opens
from relevo.client import verbs as client
from relevo.client.values import Installation, Preference
from relevo.core import queries
from relevo.core.errors import InvalidInputError, NotFoundError
from relevo.database.pool import Connection
from relevo.verbs.callers import Caller

_SQL = queries.load("phone_access")
MOST_PREFERENCES = 50
MOST_IDS = 2**63 - 1
OWN_ATTRIBUTES = "device."
"""How the names of attributes begin that a phone says of itself, with its secret or by a signature."""


def prove(caller: Caller, installation_id: UUID) -> None:
    """Refuse a caller that may not speak for a phone."""
    with caller.reading_phone(installation_id):
        pass


def prove_any(caller: Caller) -> None:
    """Refuse a caller that is no phone, whichever it is."""
    with caller.database.connection() as connection:
        phones.admit_reader(connection, caller.proof)


def register(caller: Caller, rules: DeviceRules, asked: Installation, *, renew: bool = False) -> Registered:
    """Register or refresh a phone; with `renew` it is told another secret."""
    phone = str(asked.installation_id)
    with caller.acting("register_installation", installation_id=phone) as act:
        _refuse_others(caller, asked.attributes)
        made = phones.register(act.connection, rules, asked, caller.proof, time.time(), renew=renew)
        act.result["created"] = made.created
        return made


def set_attributes(caller: Caller, installation_id: UUID, attributes: Mapping[str, Any]) -> bool:
    """Set attributes of a phone, of which the phone itself sets its own; return whether something changed."""
    with caller.acting_on_phone("set_attributes", installation_id) as (act, _):
        _refuse_others(caller, attributes)
        return act.answer(app_attributes.set_attributes(act.connection, attributes, installation_id=installation_id))


def get_attributes(caller: Caller, installation_id: UUID) -> dict[str, Any]:
    """Return the attributes that hold for a phone; to the phone itself what it may say of itself."""
    with caller.reading_phone(installation_id) as (connection, _):
        found = app_attributes.get_attributes(connection, installation_id=installation_id)
    return {name: value for name, value in found.items() if caller.token or name.startswith(OWN_ATTRIBUTES)}


def _refuse_others(caller: Caller, attributes: Mapping[str, Any] | None) -> None:
    """Refuse a phone that sets what the app knows of it, such as its plan: pushes would follow that."""
    others = [name for name in attributes or () if not name.startswith(OWN_ATTRIBUTES)]
    if others and caller.token is None:
        raise NotAllowedError(
            f"A phone does not set its attribute {min(others)[:50]}.",
            hint=f"It sets those whose name begins with {OWN_ATTRIBUTES}; the app's server sets all others.",
        )


def forget(caller: Caller, installation_id: UUID) -> int:
    """Forget a phone: its token, owner and preferences, and what was said to it alone."""
    with caller.acting_on_phone("forget", installation_id) as (act, _):
        return act.answer(client.forget(act.connection, installation_id))


def log_out(caller: Caller, installation_id: UUID) -> bool:
    """Unregister a phone, whose secret ends; return whether it was registered until now."""
    with caller.acting_on_phone("log_out_installation", installation_id) as (act, _):
        return act.answer(bool(client.unregister(act.connection, installation_id)))


def complete(caller: Caller, installation_id: UUID, reason: str = "") -> bool:
    """Complete everything for a phone until now, as handled elsewhere: waiting pushes end unsent."""
    with caller.acting_on_phone("complete_installation", installation_id) as (act, _):
        return act.answer(client.complete(act.connection, installation_id, reason))


def report_opened(caller: Caller, installation_id: UUID, delivery_id: int, /, **report: Any) -> opens.Opened:
    """Note that a push was opened on a phone, as `relevo.report_opened` does; refuse a delivery it does not have."""
    with caller.acting_on_phone("report_opened", installation_id, delivery_id=delivery_id) as (act, _):
        outcome = act.answer(opens.report_opened(act.connection, installation_id, delivery_id, **report))
        if outcome == "gone":
            raise NotFoundError(f"This installation has no delivery {delivery_id}.")
        return outcome


def list_preferences(caller: Caller, installation_id: UUID, name: str | None = None) -> list[dict[str, Any]]:
    """Return what a phone asks for: all of it, or what has one name."""
    with caller.reading_phone(installation_id) as (connection, _):
        return _list_preferences(connection, installation_id, name)


def _list_preferences(connection: Connection, installation_id: UUID, name: str | None) -> list[dict[str, Any]]:
    asked = {"installation_id": installation_id, "name": name, "limit": 10 * MOST_PREFERENCES}
    found = _rows(connection, "list_preferences", asked)
    if name is not None and not found:
        raise NotFoundError(f"There is no preference {name[:100]}.")
    return found


def set_preference(caller: Caller, installation_id: UUID, name: str, preference: Preference) -> dict[str, Any]:
    """Set one named preference, and return it; of other names there may be so many."""
    with caller.acting_on_phone("set_preference", installation_id, name=name) as (act, _):
        asked = {"installation_id": installation_id, "name": name}
        (others,) = act.connection.execute(_SQL["count_other_preferences"], asked).fetchone() or (None,)
        if others is None:
            raise phones.not_found(installation_id)
        if others >= MOST_PREFERENCES:
            raise InvalidInputError(
                f"name must be one of the {MOST_PREFERENCES} there are.", hint="Remove another first."
            )
        client.set_preference(act.connection, installation_id, name, preference)
        [found] = _list_preferences(act.connection, installation_id, name)
        return found


def remove_preference(caller: Caller, installation_id: UUID, name: str) -> None:
    """Remove one named preference; refuse a name that there is not."""
    with caller.acting_on_phone("remove_preference", installation_id, name=name) as (act, _):
        if not client.set_preference(act.connection, installation_id, name, None):
            raise NotFoundError(f"There is no preference {name[:100]}.")


def history(caller: Caller, installation_id: UUID, *, before: int = MOST_IDS, limit: int = 50) -> list[dict[str, Any]]:
    """Return what a phone got, newest first, and why.

    The phone itself, which has no token, sees what came since it has its owner; a token of one project what came there.
    """
    asked = {"installation_id": installation_id, "before": before, "own": caller.token is None, "limit": limit}
    with caller.reading_phone(installation_id) as (connection, _):
        return _rows(connection, "list_history", asked | {"project": caller.project})


def _rows(connection: Connection, statement: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_SQL[statement], parameters).fetchall()
