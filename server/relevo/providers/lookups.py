"""Looking a host's addresses up within a time: the system's own look-up knows none, and cannot be interrupted."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import Future

_MOST = 32


class Lookups:
    """Looks hosts up, each at most once at a time: one that hangs holds one thread, however many wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[tuple[str, int], Future[list[str]]] = {}

    def addresses(self, host: str, port: int, patience_s: float) -> list[str]:
        """Return a host's addresses; raises OSError if there is none, TimeoutError if that is not known in time."""
        return self._asked(host, port).result(timeout=patience_s)

    def _asked(self, host: str, port: int) -> Future[list[str]]:
        """Join the look-up of this host that is under way, or begin one."""
        with self._lock:
            asked = self._under_way.get((host, port))
            if asked is not None:
                return asked
            if len(self._under_way) >= _MOST:
                raise TimeoutError("too many look-ups hang")
            asked = self._under_way[host, port] = Future()
        thread = threading.Thread(target=self._look, args=[host, port, asked], name="relevo-lookup", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more threads
            self._end(host, port)
            raise OSError("no thread could be started") from error
        return asked

    def _look(self, host: str, port: int, asked: Future[list[str]]) -> None:
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            answer = [str(entry[4][0]) for entry in entries]
        except BaseException as error:  # noqa: BLE001 whatever it is, it belongs to whoever waits for it
            self._end(host, port)
            asked.set_exception(error)
        else:
            self._end(host, port)
            asked.set_result(answer)

    def _end(self, host: str, port: int) -> None:
        with self._lock:
            del self._under_way[host, port]
