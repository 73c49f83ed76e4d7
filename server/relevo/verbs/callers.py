"""The callers of verbs: what a caller may reach, and what the audit log records of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from relevo.access import phones
from relevo.access.api_tokens import Token
from relevo.access.phones import Known, NotAllowedError, Proof
from relevo.database.pool import Connection, Database
from relevo.operators import audit

T = TypeVar("T")
_OF_EVERY_TOKEN = frozenset({"export_owner", "block_owner", "unblock_owner", "forget_owner", "forget"})
"""The audit log records these actions of every token: exports of a person, silencing and deleting them."""
_OFTEN = frozenset({"enqueue_event"})
"""The audit log only counts these actions of an operator's token beyond its share of an hour."""


class Act(NamedTuple):
    """A running verb."""

    connection: Connection
    result: dict[str, Any]
    """The details for the audit log, if it has an entry."""

    def answer(self, answer: T) -> T:
        """Note what the verb answers, and return it."""
        self.result["answer"] = answer
        return answer


@dataclass(frozen=True)
class Caller:
    """A caller of a verb from outside the app's transaction: an operator, a token of the app's, or a phone."""

    database: Database
    proof: Proof
    """The caller's proof: a token, or a phone's secret or a signature for it."""
    has_room: Callable[[Token, str], bool] = lambda _token, _action: True
    """Whether the audit log has room for another entry of this action by a token whose entries are bounded."""

    @property
    def token(self) -> Token | None:
        """The token it calls with; a phone has none."""
        return self.proof.token

    @property
    def project(self) -> str | None:
        """The only project whose events and owners it may reach; None for all."""
        return self.token.project if self.token else None

    @property
    def is_operator(self) -> bool:
        """Whether an operator calls."""
        return self.token is not None and self.token.role == "operator"

    def own_project(self, asked: str | None) -> str | None:
        """Return the project a call is about: the caller's own, if it has one, and it may name no other."""
        if self.project is not None and asked not in (None, self.project):
            raise NotAllowedError("This token is for another project.", hint="Leave project out.")
        return self.project or asked

    def is_recorded(self, action: str) -> bool:
        """Return whether the audit log gets an entry for an action of this caller."""
        if self.token is None:
            return False
        if self.is_operator and action not in _OFTEN:
            return True
        return action in (_OFTEN if self.is_operator else _OF_EVERY_TOKEN) and self.has_room(self.token, action)

    @contextmanager
    def acting(
        self, action: str, *, owner: str | None = None, recorded: bool | None = None, **target: Any
    ) -> Iterator[Act]:
        """Open the transaction in which a verb acts, with an entry in the audit log if this caller's acts have one.

        Whether it gets one follows from the caller, unless the verb says so. It has a hash in place of an owner's
        name, so that it holds no name of who is forgotten later.
        """
        if not (self.is_recorded(action) if recorded is None else recorded):
            with self.database.transaction() as connection:
                yield Act(connection, {})
            return
        if owner is not None:
            target = {"owner_sha256": sha256_of(owner), **target}
        with audit.recorded(self.database, action, **target) as result, self.database.transaction() as connection:
            yield Act(connection, result)

    @contextmanager
    def acting_on_phone(self, action: str, installation_id: UUID, **target: Any) -> Iterator[tuple[Act, Known]]:
        """Open the transaction in which a verb acts on a phone, if this caller may speak for it."""
        with self.acting(action, installation_id=str(installation_id), **target) as act:
            yield act, phones.admit(act.connection, installation_id, self.proof)

    @contextmanager
    def reading_phone(self, installation_id: UUID) -> Iterator[tuple[Connection, Known]]:
        """Open the transaction in which a verb reads of a phone, if this caller may speak for it."""
        with self.database.transaction() as connection:
            yield connection, phones.admit(connection, installation_id, self.proof)


def operator(database: Database) -> Caller:
    """Return who runs a command: they may do what the holder of an operator's token may."""
    return Caller(database, Proof(Token("", "a command", "operator")))


def sha256_of(name: str) -> str:
    """Return what the audit log has in place of a name."""
    return hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()
