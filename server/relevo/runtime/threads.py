"""Threads that nobody has to wait for: a hung one must keep neither its caller nor the process from going on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def start(name: str, work: Callable[[], T]) -> Future[T]:
    """Do something on a daemon thread of its own, and return what will be its result."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 whatever it is, it belongs to whoever waits for it
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
