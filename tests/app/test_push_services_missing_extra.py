"""A push service whose extra is not installed: its projects are named with what to install, and the others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from types import ModuleType

import pytest

from relevo.app import push_services
from relevo.operators import doctor
from relevo.sandbox import Sandbox
from support import mixed_phones


@pytest.fixture(scope="session")
def push_service() -> Iterator[Sandbox]:
    """The sandbox of these tests: Expo, FCM, APNs and Web Push."""
    with Sandbox(native=True, apns_token_interval_s=0) as running:
        yield running


@pytest.fixture
def lacks(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let the modules of a push service find no package of its extra: `lacks("fcm")`, and `lacks("")` for none."""
    missing = [""]

    def find(module: str) -> ModuleType:
        if missing[0] and module.startswith(f"relevo.providers.{missing[0]}"):
            raise ModuleNotFoundError("No module named 'of_an_extra'", name="of_an_extra")
        return import_module(module)

    def lack(name: str) -> None:
        missing[0] = name

    monkeypatch.setattr(push_services, "import_module", find)
    return lack


@pytest.mark.parametrize("kind", mixed_phones.NATIVE_PHONES)
def test_the_others_go_on(relay, sandbox, command, lacks, kind) -> None:
    """Phones of the others have their pushes; its own wait without an attempt, status and doctor say what to install, and
    a worker that has it sends them."""
    service = mixed_phones.SERVICE_OF[kind]
    lacks(service)
    worker = relay(**mixed_phones.addresses(sandbox))
    phones = mixed_phones.register(worker.conn, sandbox, mixed_phones.ONE_OF_EACH, "ana")
    worker.tell_everyone()
    worker.drain()
    with worker.app.database.transaction() as connection:
        worker.app.worker.beat(connection)

    def ends() -> dict[str, tuple[str, int]]:
        rows = {row["installation_id"]: row for row in worker.deliveries()}
        return {each: (rows[phone]["status"], rows[phone]["attempt_count"]) for each, phone in phones.items()}

    sent = dict.fromkeys(mixed_phones.ONE_OF_EACH, ("ok", 1)) | {"expo": ("sent", 1)}
    assert ends() == sent | {kind: ("pending", 0)}
    told = f"PUSH_PROJECTS_FILE, default, {service}: its push service is not installed: pip install 'relevo[{service}]'"
    assert told in " ".join(command("status").out.split())
    settings = worker.app.settings
    troubles = partial(push_services.credential_troubles, settings)
    found = doctor.look_around(worker.app.database, settings, credential_troubles=troubles)
    assert [each for each in found if told in each.what], found
    lacks("")
    whole = relay(**mixed_phones.addresses(sandbox))
    whole.travel(minutes=5)
    whole.drain()
    assert ends() == sent
