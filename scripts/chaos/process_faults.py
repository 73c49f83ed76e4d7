"""Processes that are killed, stopped, told to stop, or live by a wrong clock."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from chaos.parts import slow_clock
from chaos.scene import Scene
from chaos.stage import LEASE_MS, Replica


def _end(replica: Replica, number: signal.Signals) -> None:
    replica.send(number)
    replica.end()
    replica.start()


def kill(scene: Scene) -> None:
    """Kill any, at any moment."""
    if replica := scene.any_replica():
        _end(replica, signal.SIGKILL)


def kill_at_a_request(scene: Scene) -> None:
    """Kill one between its journal and the answer."""
    if replica := scene.one_with_a_request():
        _end(replica, signal.SIGKILL)
        scene.hit("killed with a request under way")


def pause(scene: Scene) -> None:
    """Stop any for longer than its lease, then let it go on."""
    if replica := scene.any_replica():
        _pause(scene, replica)


def pause_at_a_request(scene: Scene) -> None:
    """Stop one between its journal and the answer, which it finds when it goes on, its lease long over."""
    if replica := scene.one_with_a_request():
        _pause(scene, replica)
        scene.hit("stopped beyond the lease with a request under way")


def _pause(scene: Scene, replica: Replica) -> None:
    replica.send(signal.SIGSTOP)
    time.sleep(LEASE_MS / 1000 * (1.5 + scene.chance.random()))
    replica.send(signal.SIGCONT)


def stop(scene: Scene) -> None:
    """Tell any to stop, and start it again."""
    if replica := scene.any_replica():
        _end(replica, signal.SIGTERM)


def slow(scene: Scene) -> None:
    """Let one live by a clock that is ten minutes slow, until something else ends it."""
    clock, replica = slow_clock(), scene.any_replica()
    if clock is None or replica is None:
        return
    replica.send(signal.SIGTERM)
    replica.end()
    replica.start(None, **clock)
    assert replica.process is not None
    scene.slow.append(replica.process.pid)


KINDS: dict[str, Callable[[Scene], None]] = {
    "killed": kill,
    "killed at a request": kill_at_a_request,
    "stopped beyond the lease": pause,
    "stopped at a request, beyond the lease": pause_at_a_request,
    "told to stop": stop,
}


def kinds(skipped: dict[str, str]) -> dict[str, Callable[[Scene], None]]:
    """Return what can be done here; what cannot is named with the reason."""
    if slow_clock() is None:
        skipped["clock ten minutes slow"] = "install libfaketime (Debian: apt-get install libfaketime)"
        return KINDS
    return KINDS | {"clock ten minutes slow": slow}
