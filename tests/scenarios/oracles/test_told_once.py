"""A random year of phones, owners and changed minds: each event is told once, by a push or a digest, or the code says why not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest

from relevo.sandbox import Sandbox
from relevo.sandbox import Settings as SandboxSettings
from support.soak import cases
from support.time_machine import TimeMachine, time_machine
from support.told_once_player import Player

FAULT = """
create sequence tests.tries;
create table tests.fault (at bigint);
create function tests.fail() returns trigger language plpgsql as $$ begin
  if nextval('tests.tries') = (select f.at from tests.fault f) then
    raise exception 'the closing is rolled back';
  end if;
  return new;
end $$;
create trigger fail before insert on relevo.notification_deliveries for each row
  when (new.event_type = 'relevo.digest') execute function tests.fail();
"""
"""Sequences do not roll back: the try after the fault goes through."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A push service without limits, which keeps what phones got."""
    with Sandbox() as running:
        running.set(**asdict(SandboxSettings(rate_per_s=0, receipt_delay_s=0, apns_token_interval_s=0)))
        yield running


@pytest.fixture(scope="module")
def machine(module_settings: Any, sandbox: Sandbox) -> Iterator[TimeMachine]:
    """Two replicas and their database, which walk through time; one phone is a slice of a closing."""
    usual = {"expo_base_url": sandbox.url, "push_rate_per_second": 0, "fanout_slice_size": 1}
    with time_machine(module_settings, 2, **usual) as made:
        made.conn.execute(FAULT)
        made.conn.execute("insert into tests.fault values (null)")
        yield made


@pytest.mark.parametrize("seed", range(cases(2, whole=40)))
def test_each_event_is_told_once(machine: TimeMachine, sandbox: Sandbox, seed: int) -> None:
    """Whatever changes over a year, each wanted event is told once to the right person, or its code says why not."""
    player = Player(machine, sandbox, seed)
    player.play(cases(60, whole=150))
    assert sum(digest.is_over for digest in player.oracle.digests) > 3, "the year was not empty"
    assert player.got, "nor without a push"
