"""Processes that are killed, stopped, told to stop, or live by a wrong clock."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from chaos.fault_context import FaultContext
from chaos.parts import slow_clock
from chaos.system import LEASE_MS, Replica


def _end(replica: Replica, number: signal.Signals) -> None:
    replica.send(number)
    replica.end()
    replica.start()


def kill(context: FaultContext) -> None:
    """Kill any, at any moment."""
    if replica := context.any_replica():
        _end(replica, signal.SIGKILL)


def kill_at_a_request(context: FaultContext) -> None:
    """Kill one between its journal and the answer."""
    if replica := context.one_with_a_request():
        _end(replica, signal.SIGKILL)
        context.hit("killed with a request under way")


def pause(context: FaultContext) -> None:
    """Stop any for longer than its lease, then let it go on."""
    if replica := context.any_replica():
        _pause(context, replica)


def pause_at_a_request(context: FaultContext) -> None:
    """Stop one between its journal and the answer, which it finds when it goes on, its lease long over."""
    if replica := context.one_with_a_request():
        _pause(context, replica)
        context.hit("stopped beyond the lease with a request under way")


def _pause(context: FaultContext, replica: Replica) -> None:
    replica.send(signal.SIGSTOP)
    time.sleep(LEASE_MS / 1000 * (1.5 + context.chance.random()))
    replica.send(signal.SIGCONT)


def pause_about_the_lease(context: FaultContext) -> None:
    """Stop one at a request for about as long as its lease: it settles while a reaper takes it back."""
    if replica := context.one_with_a_request():
        replica.send(signal.SIGSTOP)
        time.sleep(LEASE_MS / 1000 * (0.9 + 0.4 * context.chance.random()))
        replica.send(signal.SIGCONT)
        context.hit("stopped for about the lease with a request under way")


def stop(context: FaultContext) -> None:
    """Stop any process in an orderly way, and start it again."""
    if replica := context.any_replica():
        _end(replica, signal.SIGTERM)


def slow(context: FaultContext) -> None:
    """Run one by a clock that is ten minutes slow, until something else ends it."""
    clock, replica = slow_clock(), context.any_replica()
    if clock is None or replica is None:
        return
    replica.send(signal.SIGTERM)
    replica.end()
    replica.start(None, **clock)
    assert replica.process is not None
    context.slow.append(replica.process.pid)


KINDS: dict[str, Callable[[FaultContext], None]] = {
    "killed": kill,
    "killed at a request": kill_at_a_request,
    "stopped beyond the lease": pause,
    "stopped at a request, beyond the lease": pause_at_a_request,
    "stopped at a request, for about its lease": pause_about_the_lease,
    "told to stop": stop,
}


def kinds(skipped: dict[str, str]) -> dict[str, Callable[[FaultContext], None]]:
    """Return what can be done here; what cannot is named with the reason."""
    if slow_clock() is None:
        skipped["clock ten minutes slow"] = "install libfaketime (Debian: apt-get install libfaketime)"
        return KINDS
    return KINDS | {"clock ten minutes slow": slow}
