"""Looks for those who wait: all that is due is asked for together, nobody who came waits for others' rest, and none is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from relevo.client.values import EventStatus
from relevo.http import waiting
from relevo.http.problems import busy
from relevo.http.waiting import EventWaiters, EventWaiting, InboxWaiters, InboxWaiting, Places
from relevo.verbs.inboxes import Numbering, Whose


class Caller:
    """A request whose caller stays."""

    state = type("State", (), {"caller": type("Token", (), {"id": "a"})})

    async def receive(self) -> Any:
        """Hear nothing."""
        await asyncio.Event().wait()


class Threads:
    """Answers what is looked for: every event is over, an inbox as it was told."""

    def __init__(self, *told: Any) -> None:
        self.told = iter(told)
        self.asked: list[Any] = []

    async def run_statement(self, function: Any, asked: Any) -> Any:
        """Answer a look."""
        if function is waiting.events.look:
            self.asked.append(sorted(asked))
            return {each: seen(each, "finished") for each in asked}
        found = next(self.told)
        if isinstance(found, Exception):
            raise found
        return found

    async def fail(self, _function: Any, _asked: Any) -> Any:
        """Have no turn."""
        raise busy("full")


def seen(number: int, state: Any = "waiting") -> EventStatus:
    """Return an event as it was seen."""
    return EventStatus(number, "t", "k", state, {}, {})


def event_waiters(threads: Threads) -> EventWaiters:
    """Return those who wait for events."""
    return EventWaiters(threads, Places(100))  # type: ignore[arg-type]


def test_many_who_wait_for_one_event_leave_room_for_others(monkeypatch: Any) -> None:
    """A look has room for so many events, not for so many callers: those of one event are one."""
    monkeypatch.setattr(waiting, "_AT_ONCE", 2)
    monkeypatch.setattr(waiting, "_FIRST_LOOK_S", 0.0)

    async def story() -> list[Any]:
        waiters = event_waiters(threads := Threads())
        waiters._waiting = {EventWaiting("a", seen(number), "sent"): None for number in (1, 1, 1, 2, 3)}
        await waiters._look()
        assert [each.came.is_set() for each in waiters._waiting] == [True] * 4 + [False]
        return threads.asked

    assert asyncio.run(story()) == [[1, 2]]


def test_who_comes_while_others_are_due_much_later_is_looked_for_at_once(monkeypatch: Any) -> None:
    """A caller is looked for after its own first pause, however long the task would rest for those who wait already."""
    monkeypatch.setattr(waiting, "_LAST_LOOK_S", 600.0)

    async def story() -> EventStatus | None:
        waiters = event_waiters(Threads())
        early = EventWaiting("a", seen(1), "sent")
        early.next_look += 600
        waiters._waiting[early] = None
        waiters._task = asyncio.create_task(waiters._look_on())
        while not waiters._rests_until:
            await asyncio.sleep(0)
        async with asyncio.timeout(30):
            found = await waiters.wait(Caller(), seen(2), "sent", 600)  # type: ignore[arg-type]
        assert not early.came.is_set()
        waiters.close()
        return found

    found = asyncio.run(story())
    assert found is not None
    assert found.state == "finished"


def test_a_look_for_inboxes_that_failed_is_made_again() -> None:
    """What the last look of all would have found is found by the next, though the numbers did not go on since."""

    async def story() -> bool:
        told = (Numbering(7, 10, 10), {}, Numbering(7, 10, 11), {}, Numbering(7, 11, 12), busy("full"))
        waiters = InboxWaiters(Threads(*told, Numbering(7, 12, 0), {0: 7}), Places(100))  # type: ignore[arg-type]
        one = InboxWaiting("a", Whose("ana"), 6)
        waiters._waiting[one] = None
        for _ in range(4):
            try:
                await waiters._look()
            except waiting.Problem:
                assert waiters._progress.settled == 7
        return one.came.is_set()

    assert asyncio.run(story())


def test_who_waits_is_looked_for_more_and_more_seldom(monkeypatch: Any) -> None:
    """Each look puts the next one off by half as much again, up to the last pause, and so does one that fails."""
    monkeypatch.setattr(Threads, "run_statement", Threads.fail)

    async def story() -> list[float]:
        waiters, pauses = event_waiters(Threads()), list[float]()
        one = EventWaiting("a", seen(1), "sent")
        waiters._waiting[one] = None
        for _ in range(20):
            one.next_look = 0.0
            with pytest.raises(waiting.Problem):
                await waiters._look()
            assert one.next_look > 0.0
            pauses.append(one._pause)
        return pauses

    pauses = asyncio.run(story())
    assert pauses[:3] == pytest.approx([0.05 * 1.5, 0.05 * 1.5**2, 0.05 * 1.5**3])
    assert pauses[-1] == 1.0


def test_who_waits_while_the_process_ends_is_let_go() -> None:
    """Whoever waits is answered with what was last seen; who comes then is not kept either."""

    async def story() -> None:
        waiters, inbox = event_waiters(Threads()), InboxWaiters(Threads(), Places(100))  # type: ignore[arg-type]
        waits = asyncio.create_task(waiters.wait(Caller(), seen(1), "sent", 600))  # type: ignore[arg-type]
        while not waiters._waiting:
            await asyncio.sleep(0)
        waiters.close()
        inbox.close()
        async with asyncio.timeout(30):
            found = await waits
            assert found is not None
            assert found.state == "waiting"
            one = InboxWaiting("a", Whose("ana"), 6)
            async with inbox.enter(Caller(), one) as left:  # type: ignore[arg-type]
                assert await one.next(left, 600) == "was let go"
        assert (waiters.places.count, inbox.places.count) == (0, 0)

    asyncio.run(story())
