"""No order of calls lets a stranger take over a phone, an owner or a token, or read what is another's.

A machine calls the verbs behind the devices' routes as three parties in any order, beside a model that says who holds
what; each call is its own transaction, as each request is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

import relevo
from relevo.access import phones as devices
from relevo.access.api_tokens import Token
from relevo.access.phones import DeviceRules, NoProofError, NotAllowedError, Proof
from relevo.client import verbs
from relevo.client.signatures import SigningKey, sign_installation
from relevo.client.values import Installation
from relevo.core.errors import NotFoundError

KEY = "a" * 43 + "="
RULES = DeviceRules({"k": SigningKey(b"i\xa6\x9a" * 10 + b"i\xa6")}, open_project="default")
PHONES = [UUID(int=n) for n in (1, 2, 3)]
TOKENS = [f"ExponentPushToken[{n}]" for n in (1, 2)]
OWNERS = ["ana", "eva"]
APP = Token("000000000000", "app", "app")
REFUSED = (NoProofError, NotAllowedError, NotFoundError)

phones, owners, tokens = st.sampled_from(PHONES), st.sampled_from([None, *OWNERS]), st.sampled_from([None, *TOKENS])


class Callers(RuleBasedStateMachine):
    """The app, phones with the secrets they were told, and a stranger who heard every secret that was ever ended."""

    conn: psycopg.Connection[Any]

    def __init__(self) -> None:
        super().__init__()
        self.conn.execute("delete from relevo.device_installations")
        self.secrets: dict[UUID, str] = {}
        self.ended: set[str] = set()
        self.owners: dict[UUID, str | None] = {}
        self.tokens: dict[UUID, str | None] = {}

    def put(self, asked: Installation, proof: Proof) -> devices.Registered | None:
        """Register in a transaction of its own; None if it was refused, and then nothing has changed."""
        before = self.stored()
        try:
            with self.conn.transaction():
                made = devices.register(self.conn, RULES, asked, proof, time.time())
        except REFUSED:
            assert self.stored() == before
            return None
        self.note(asked, made.secret)
        return made

    def note(self, asked: Installation, secret: str | None) -> None:
        """Note in the model what was registered."""
        phone = asked.installation_id
        assert phone is not None
        if secret is not None or asked.owner not in (None, self.owners.get(phone)):
            self.end(phone)
        if secret is not None:
            self.secrets[phone] = secret
        self.owners[phone] = asked.owner or self.owners.get(phone)
        if asked.token is not None:
            self.tokens = {each: None if token == asked.token else token for each, token in self.tokens.items()}
        self.tokens[phone] = asked.token or self.tokens.get(phone)

    def end(self, phone: UUID) -> None:
        """Note that a phone's secret is one no more."""
        self.ended |= {self.secrets.pop(phone)} if phone in self.secrets else set()

    def stored(self) -> Any:
        """Return what is in the database."""
        return self.conn.execute(
            "select i.installation_id, i.owner, i.token, s.secret_hash from relevo.device_installations i"
            " left join relevo.device_secrets s using (installation_id) order by 1"
        ).fetchall()

    @rule(phone=phones, owner=owners, token=tokens)
    def app_registers(self, phone: UUID, owner: str | None, token: str | None) -> None:
        """With the app's token everything goes but to take a token from another installation."""
        held = token is not None and any(each != phone and has == token for each, has in self.tokens.items())
        has_secret = phone in self.secrets and owner in (None, self.owners.get(phone))
        made = self.put(Installation(token, installation_id=phone, owner=owner), Proof(APP))
        assert (made is None) == held
        assert made is None or (made.secret is None) == has_secret

    @rule(phone=phones, owner=owners, token=tokens)
    def signed_phone_registers(self, phone: UUID, owner: str | None, token: str | None) -> None:
        """A signature says who a phone's owner is, and may bring a token along."""
        signature = sign_installation("k", KEY, installation_id=phone, token=token, owner=owner)
        refused = owner is None and self.owners.get(phone) is not None
        made = self.put(Installation(token, installation_id=phone, owner=owner), Proof(signature=signature))
        assert (made is None) == refused

    @rule(phone=phones, token=tokens, owner=owners)
    def phone_refreshes(self, phone: UUID, token: str | None, owner: str | None) -> None:
        """With its own secret a phone changes its token, and neither its owner nor another's token."""
        if phone not in self.secrets:
            return
        held = token is not None and any(each != phone and has == token for each, has in self.tokens.items())
        refused = held or owner not in (None, self.owners[phone])
        asked = Installation(token, installation_id=phone, owner=owner)
        made = self.put(asked, Proof(secret=self.secrets[phone]))
        assert (made is None) == refused
        assert made is None or made.secret is None

    @rule(phone=phones, other=phones, token=tokens, owner=owners, known=st.booleans())
    def stranger_tries(self, phone: UUID, other: UUID, token: str | None, owner: str | None, known: bool) -> None:
        """A stranger with no, another's, or an ended secret, or a signature for something else, gets what is free."""
        stolen = self.secrets.get(other) if known and other != phone else next(iter(self.ended), None)
        wrong = None
        if known and owner:
            wrong = sign_installation("k", KEY, installation_id=phone, token=token, owner="mallory")
        there = phone in self.owners
        free = not there and owner is None and stolen is None
        held = token is not None and token in self.tokens.values()
        made = self.put(Installation(token, installation_id=phone, owner=owner), Proof(None, stolen, wrong))
        if there or owner is not None or held:
            assert made is None
        if free and not held:
            assert made is not None
        if made is None:
            with pytest.raises(REFUSED):
                devices.admit(self.conn, phone, Proof(secret=stolen))

    @rule(phone=phones, owner=st.sampled_from(OWNERS))
    def sql_gives_it_to(self, phone: UUID, owner: str) -> None:
        """The app changes an owner through SQL: the phone's secret ends."""
        if phone not in self.owners:
            return
        verbs.register(self.conn, Installation(None, installation_id=phone, owner=owner))
        self.note(Installation(None, installation_id=phone, owner=owner), None)

    @rule(phone=phones)
    def sql_logs_out(self, phone: UUID) -> None:
        """The app unregisters a phone: its secret ends."""
        if relevo.unregister(self.conn, phone):
            self.end(phone)

    @rule(phone=phones)
    def phone_leaves(self, phone: UUID) -> None:
        """A phone has itself forgotten."""
        if phone in self.secrets:
            verbs.forget(self.conn, devices.admit(self.conn, phone, Proof(secret=self.secrets[phone])).installation_id)
            self.end(phone)
            del self.owners[phone], self.tokens[phone]

    @invariant()
    def everybody_has_what_is_theirs(self) -> None:
        """Owners, tokens and secrets are as the model has them: nobody else's secret opens a phone."""
        stored = {row[0]: row[1:3] for row in self.stored()}
        assert stored == {phone: (self.owners[phone], self.tokens[phone]) for phone in self.owners}
        for phone in self.owners:
            for secret in [*self.secrets.values(), *sorted(self.ended)[:3]]:
                mine = secret == self.secrets.get(phone)
                assert self.opens(phone, secret) == mine

    def opens(self, phone: UUID, secret: str) -> bool:
        """Tell whether a secret lets somebody read a phone's preferences."""
        try:
            devices.admit(self.conn, phone, Proof(secret=secret))
        except REFUSED:
            return False
        return True


@pytest.fixture
def machine(conn: psycopg.Connection[Any]) -> Iterator[type[Callers]]:
    """The machine, on the test's database."""
    Callers.conn = conn
    yield Callers
    del Callers.conn


def test_no_order_of_calls_takes_anything_over(machine: type[Callers]) -> None:
    """Whatever is called by whom in whatever order, everybody keeps what is theirs."""
    bounded = settings(
        max_examples=25,
        stateful_step_count=15,
        deadline=None,
        database=None,
        print_blob=True,
        phases=[Phase.generate],  # no shrinking, which takes minutes: the printed blob brings the case back
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=bounded)


def test_a_secret_that_ends_while_its_phone_is_locked_proves_nothing(
    conn: psycopg.Connection[Any], dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The app gives the phone to another owner between the first look and the lock: the proof is judged by what is there then."""
    asked, lock = Installation(TOKENS[0], PHONES[0]), devices._lock
    with conn.transaction():
        secret = devices.register(conn, RULES, asked, Proof(), time.time()).secret

    def lock_late(connection: Any, asked: Installation) -> Any:
        with psycopg.connect(dsn) as app:
            verbs.register(app, Installation(TOKENS[0], PHONES[0], owner="eva"))
        return lock(connection, asked)

    monkeypatch.setattr(devices, "_lock", lock_late)
    with pytest.raises(NoProofError), conn.transaction():
        devices.register(conn, RULES, asked, Proof(secret=secret), time.time())
