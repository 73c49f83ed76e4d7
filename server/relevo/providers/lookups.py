"""Looking a host's addresses up within a time: the system's own look-up knows none, and cannot be interrupted."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import Future

_MOST = 32


class Lookups:
    """Looks hosts up, each by few threads at a time: one that hangs holds no more, however many wait for it."""

    def __init__(self, of_one_host: int = 1) -> None:
        self._of_one_host = of_one_host
        self._lock = threading.Lock()
        self._under_way: dict[Future[list[str]], tuple[str, int]] = {}

    def addresses(self, host: str, port: int, patience_s: float) -> list[str]:
        """Return a host's addresses; raises OSError if there is none, TimeoutError if that is not known in time."""
        return self._asked(host, port).result(timeout=patience_s)

    def _asked(self, host: str, port: int) -> Future[list[str]]:
        """Begin a look-up of this host, or join the last one if enough of it are under way."""
        with self._lock:
            of_host = [asked for asked, place in self._under_way.items() if place == (host, port)]
            if len(of_host) >= self._of_one_host:
                return of_host[-1]
            if len(self._under_way) >= _MOST:
                raise TimeoutError("too many look-ups hang")
            asked: Future[list[str]] = Future()
            self._under_way[asked] = host, port
        thread = threading.Thread(target=self._look, args=[host, port, asked], name="relevo-lookup", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more threads
            self._end(asked)
            raise OSError("no thread could be started") from error
        return asked

    def _look(self, host: str, port: int, asked: Future[list[str]]) -> None:
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            answer = [str(entry[4][0]) for entry in entries]
        except BaseException as error:  # noqa: BLE001 whatever it is, it belongs to whoever waits for it
            self._end(asked)
            asked.set_exception(error)
        else:
            self._end(asked)
            asked.set_result(answer)

    def _end(self, asked: Future[list[str]]) -> None:
        with self._lock:
            del self._under_way[asked]
