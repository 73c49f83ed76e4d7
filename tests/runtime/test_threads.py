"""Threads that nobody has to wait for: one after the other does what comes, and none that is at something else."""

from __future__ import annotations

import contextvars
import threading

import pytest

from relevo.runtime import threads
from support.processes import PATIENCE_S, eventually

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


@pytest.fixture
def free(monkeypatch) -> list[threading.Thread]:
    """The threads that wait for something to do: none in the beginning."""
    waiting: list[threading.Thread] = []
    monkeypatch.setattr(threads, "_free", waiting)
    return waiting


def test_a_thread_that_is_done_does_the_next_thing(free) -> None:
    """What comes after it has ended runs on the same thread, under its own name and in the context of its caller."""

    def look() -> tuple[int, str, str]:
        return threading.get_ident(), threading.current_thread().name, WHO.get()

    first = threads.start("relevo-first", look).result(PATIENCE_S)
    eventually(lambda: [each.name for each in free] == ["relevo-idle"], "it is free")
    token = WHO.set("a run")
    try:
        second = threads.start("relevo-second", look).result(PATIENCE_S)
    finally:
        WHO.reset(token)
    assert first[1:] == ("relevo-first", "nobody")
    assert second == (first[0], "relevo-second", "a run")


def test_one_that_hangs_is_given_nothing(free) -> None:
    """While a thread is at something, what comes runs on another, and both are free afterwards."""
    go_on = threading.Event()
    hanging = threads.start("relevo-hangs", lambda: go_on.wait(PATIENCE_S) and threading.get_ident())
    other = threads.start("relevo-other", threading.get_ident).result(PATIENCE_S)
    go_on.set()
    assert hanging.result(PATIENCE_S) != other
    eventually(lambda: len(free) == 2, "both are free")


def test_what_raises_costs_only_itself(free) -> None:
    """Whoever waits gets what was raised; the thread goes on with the next thing."""

    def fail() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        threads.start("relevo-fails", fail).result(PATIENCE_S)
    eventually(lambda: len(free) == 1, "it is free")
    assert threads.start("relevo-next", lambda: 7).result(PATIENCE_S) == 7


def test_one_that_waited_long_enough_ends(free, monkeypatch) -> None:
    """Threads that a busy time needed do not stay for ever."""
    monkeypatch.setattr(threads, "_WAITS_S", 0.01)
    before = set(threading.enumerate())
    threads.start("relevo-short", lambda: None).result(PATIENCE_S)
    eventually(lambda: set(threading.enumerate()) <= before, "it ended")
    assert free == []


def test_what_one_of_many_raises_reaches_whoever_waits(free) -> None:
    """Things done in turn: what the work raises is raised again, and nothing behind it is done."""
    done = []

    def work(number: int) -> int:
        done.append(number)
        if number == 2:
            raise SystemExit(3)
        return number

    with pytest.raises(SystemExit):
        threads.in_turn("relevo-turn", [1, 2, 3], work, patience_s=PATIENCE_S, leave=lambda *_: None)
    assert done == [1, 2]


def test_what_hangs_in_its_turn_holds_up_no_other(free) -> None:
    """The one that hangs is left behind with its name; each other is done once, and one after the other."""
    go_on, left = threading.Event(), []

    def work(number: int) -> int:
        return number if number != 2 else int(go_on.wait(PATIENCE_S))

    done = threads.in_turn("relevo-turn", [1, 2, 3, 4], work, patience_s=0.2, leave=lambda item, *_: left.append(item))
    assert (done, left) == ([(1, 1), (3, 3), (4, 4)], [2])
    go_on.set()
    eventually(lambda: len(free) == 2, "both are free")
