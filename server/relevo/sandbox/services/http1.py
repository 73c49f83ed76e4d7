"""One HTTP/1.1 connection of a client, for the services that have it; one request after the other."""

from __future__ import annotations

import asyncio

import h11

from relevo.sandbox.answers import HttpResponse
from relevo.sandbox.faults.expo import Exchange
from relevo.sandbox.services.exchange import Body, ConnectionOwner, Service, Speaker, headers_of


class Http1(Speaker):
    """One request after the other."""

    def __init__(self, service: Service, transport: asyncio.Transport, owner: ConnectionOwner) -> None:
        super().__init__(service, transport, owner)
        self._h11 = h11.Connection(h11.SERVER)
        self._head: h11.Request | None = None
        self._body = Body()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        self._h11.receive_data(data)
        self._go_on()

    def _go_on(self) -> None:
        try:
            self._take_events()
        except h11.ProtocolError:
            self._transport.close()

    def _take_events(self) -> None:
        while True:
            event = self._h11.next_event()
            if isinstance(event, h11.Request):
                self._head, self._body = event, Body()
                if (b"expect", b"100-continue") in event.headers:
                    informed = h11.InformationalResponse(status_code=100, headers=[])
                    self._transport.write(self._h11.send(informed) or b"")
            elif isinstance(event, h11.Data):
                self._body.add(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                self._end()
            elif isinstance(event, h11.ConnectionClosed):
                self._transport.close()
                return
            else:  # more bytes are needed, or an answer comes first
                return

    def _end(self) -> None:
        head = self._head
        if head is None:
            return
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers]
        method, path = head.method.decode("latin-1"), head.target.decode("latin-1")
        self._play(self._answered(method, path, headers, self._body))

    def _play(self, exchange: Exchange) -> None:
        fault = exchange.fault
        match fault.value.removesuffix("-delivered") if fault else "":
            case "hang":
                return
            case "slow" if fault is not None:
                self._loop.call_later(fault.seconds, self._write, exchange.answer)
            case "reset":
                self._transport.abort()
            case "refused" | "stream-error" | "goaway":  # there are no streams here: the connection ends
                self._transport.close()
            case "truncated":
                self._write(exchange.answer, cut=True)
                self._transport.close()
            case _:
                self._write(exchange.answer)

    def _write(self, answer: HttpResponse, *, cut: bool = False) -> None:
        if self._transport.is_closing():
            return
        written = self._h11.send(h11.Response(status_code=answer.status, headers=headers_of(answer))) or b""
        body = answer.body[: len(answer.body) // 2] if cut else answer.body
        written += self._h11.send(h11.Data(data=body)) or b""
        if cut:
            self._transport.write(written)
            return
        self._transport.write(written + (self._h11.send(h11.EndOfMessage()) or b""))
        if self._h11.our_state is h11.MUST_CLOSE:
            self._transport.close()
            return
        self._h11.start_next_cycle()
        self._loop.call_soon(self._go_on)  # what came meanwhile
