"""The embedded default, alive: a small shop with customers, their orders, an offer now and then, and tenders beside.

A first `make run` then shows what there is to see: pushes with their receipts, a phone that is gone, one that is tried
again, one dead letter, and a month that lies in the archive.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection
from itertools import cycle
from pathlib import Path
from typing import Protocol, runtime_checkable
from uuid import UUID, uuid5

import psycopg
import structlog

from relevo.client import verbs
from relevo.client.values import Event, Installation, Owners, Preference, TenderPreference, Topic
from relevo.config import Settings
from relevo.core import queries
from relevo.core.errors import RelevoError
from relevo.core.known_services import NATIVE, SERVICES
from relevo.database.pool import Connection, Database
from relevo.sandbox import embedded as embedded_sandbox

_log = structlog.get_logger("relevo.demo")
_SQL = queries.load("demo")
OFFERS = "offers"
_CUSTOMERS: dict[str, Preference] = {
    "ana": Preference(topics=(OFFERS,)),
    "benja": Preference(keywords=("puente", "ciclovía")),
    "carla": Preference(topics=(OFFERS,)),
    "diego": TenderPreference(rubro_prefix="72", monto_min=100_000_000, moneda="CLP"),
    "elena!DeviceNotRegistered": Preference(keywords=("luminarias",)),
    "fabio!MessageRateExceeded*1": TenderPreference(region="Región de Ñuble"),
    "gina!MessageTooBig": Preference(enabled=False),
}
"""The customers with their topics; after the `!` stands the sandbox's fault: gone, retried once, refused for good."""
_ANA = "ana"
_OTHER_PHONES = {name: SERVICES[name].platforms[0] for name in NATIVE}
"""Ana's further phones: one of each push service."""
_WARES = ("a kettle", "two chairs", "a desk lamp", "a bookshelf", "six glasses", "a rug", "a wall clock")
_FAMILY = UUID("5c6f6b9e-8f0b-4f0e-9d0a-72656c65766f")
_SAMPLE = Path(__file__).parents[1] / "sources" / "sample"
_EVERY_S = 30.0
_OFFER_EVERY = 5
_TURN_S = 5.0
NewSecret = Callable[[Connection, UUID], str]
"""Gives a phone a secret in place of the one it had."""


def wanted(settings: Settings) -> bool:
    """Return whether this process runs on nothing but defaults: the embedded server and the bundled sample."""
    return settings.database_url is None and settings.sources == ("folder",) and settings.folder_source_dir is None


def open_shop(database: Database) -> None:
    """Register the customers and send their first orders, the same every time, with a past month behind them."""
    with database.transaction() as connection:
        connection.execute(_SQL["ask_for_taps"])
        for name, preference in _CUSTOMERS.items():
            owner = name.partition("!")[0]
            phone = Installation(
                f"ExponentPushToken[demo-{name}]", uuid5(_FAMILY, name), platform="android", owner=owner
            )
            verbs.set_preference(connection, verbs.register(connection, phone), "default", preference)
        first = [order(name.partition("!")[0], 1001 + n, _WARES[n]) for n, name in enumerate(_CUSTOMERS)]
        verbs.enqueue_many(connection, [*first, offer("opening", "A tenth off everything, this week")])
        for month, _ in connection.execute(_SQL["make_past_month"]).fetchall():
            connection.execute(_SQL["fill_past_month"], {"month": month})


def hand_out_phones(database: Database, data_dir: Path, providers: Collection[str]) -> None:
    """Register a phone of each other kind for Ana, as far as the embedded sandbox and this process serve them.

    At every start, for a browser's subscription holds the sandbox's address.
    """
    made = {
        provider: embedded_sandbox.make_token(data_dir, {"service": provider, "name": f"demo-{_ANA}"})
        for provider in _OTHER_PHONES
        if provider in providers
    }
    with database.transaction() as connection:
        for provider, token in made.items():
            if token is not None:
                phone = Installation(
                    token,
                    uuid5(_FAMILY, provider),
                    provider=provider,
                    platform=_OTHER_PHONES[provider],
                    owner=_ANA,
                )
                verbs.set_preference(connection, verbs.register(connection, phone), "default", _CUSTOMERS[_ANA])


def order(owner: str, number: int, ware: str) -> Event:
    """Return what a customer is told of an order that left the house."""
    return Event(
        "order.shipped",
        f"order-{number}",
        "On its way",
        f"Order {number} has left our house: {ware}",
        data={"orderId": number},
        audience=Owners(owner),
    )


def offer(name: str, text: str) -> Event:
    """Return an offer, for the phones that asked for the topic."""
    return Event("offer", name, "This week", text, audience=Topic(OFFERS))


def install_apps(database: Database, data_dir: Path, url: str, new_secret: NewSecret) -> None:
    """Put the shop's app on each phone of the sandbox: its buttons then tell Relevo what an app would."""
    ids = [*(uuid5(_FAMILY, name) for name in _CUSTOMERS), *(uuid5(_FAMILY, provider) for provider in _OTHER_PHONES)]
    with database.transaction() as connection:
        found = connection.execute(_SQL["find_tokens"], {"ids": ids}).fetchall()
        secrets_of = {token: (phone, new_secret(connection, phone)) for phone, token in found}
    for token, (phone, secret) in secrets_of.items():
        given = {"url": url, "installationId": str(phone), "secret": secret}
        embedded_sandbox.install_app(data_dir, token, given)


@runtime_checkable
class Serves(Protocol):
    """The facts about the HTTP server that the shop needs."""

    url: str

    def wait_until_serving(self, timeout_s: float) -> bool:
        """Wait until a port was found; return whether it was."""


class Shop:
    """Ships an order now and then, and has the past month archived, as long as the demo runs.

    `run_cycle` runs a cycle by its name and returns the outcome.
    """

    def __init__(
        self,
        database: Database,
        data_dir: Path,
        run_cycle: Callable[[str], str],
        new_secret: NewSecret,
        *,
        server: Serves | None = None,
        every_s: float = _EVERY_S,
    ) -> None:
        self._database = database
        self._data_dir = data_dir
        self._run_cycle = run_cycle
        self._new_secret = new_secret
        self._server = server
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, name="demo", daemon=True)

    def start(self) -> None:
        """Wait for the cycles."""

    def watch(self, *_: object) -> None:
        """Begin, now that somebody sends."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _live(self) -> None:
        self._install()
        self._archive()
        customers = cycle(["ana", "benja", "carla", "diego", "fabio"])
        for turn, ware in enumerate(cycle(_WARES), 1):
            if self._stop.wait(self._every_s):
                return
            try:
                self.sell(next(customers), ware, turn)
            except (RelevoError, psycopg.Error) as error:  # it is a demo: the next order comes in half a minute
                _log.warning("demo_order_not_shipped", error=type(error).__name__)

    def sell(self, owner: str, ware: str, turn: int) -> None:
        """Ship one order, and every fifth time make an offer, too."""
        number = 2000 + secrets.randbelow(1_000_000)
        events = [order(owner, number, ware)]
        if turn % _OFFER_EVERY == 0:
            events.append(offer(f"offer-{number}", f"This week at half its price: {ware}"))
        with self._database.transaction() as connection:
            verbs.enqueue_many(connection, events)

    def _install(self) -> None:
        if self._server is None or not self._server.wait_until_serving(_TURN_S):
            return
        try:
            install_apps(self._database, self._data_dir, self._server.url, self._new_secret)
        except (RelevoError, psycopg.Error) as error:  # taps then stay on the sandbox's page
            _log.warning("demo_apps_not_installed", error=type(error).__name__)

    def _archive(self) -> None:
        """Retire and export the past month, each once the start's own run of that cycle has ended."""
        for name in ("cleanup", "archive-export"):
            while not self._stop.wait(_TURN_S) and self._run_cycle(name) == "skipped":
                pass


def lay_out(settings: Settings) -> None:
    """Copy the bundled sample beside the embedded database, where more can be dropped."""
    settings.sample_folder.mkdir(parents=True, exist_ok=True)
    for file in _SAMPLE.glob("*.jsonl"):
        if not (there := settings.sample_folder / file.name).exists():
            there.write_bytes(file.read_bytes())
