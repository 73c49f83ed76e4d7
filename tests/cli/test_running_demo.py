"""What a newcomer sees first: where to look, and within seconds pushes with their receipts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from relevo.core.known_services import NATIVE
from support.processes import Process, Processes, eventually


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Process]]:
    """Start the demo, in a folder of its own."""
    started = Processes("", tmp_path)
    nothing = {"database_url": "", "expo_base_url": "", "log_format": "json"}
    yield lambda: started.relevo(
        "run", relevo_demo="true", http_enabled=True, relevo_data_dir=tmp_path / "data", **nothing
    )
    started.close()


def test_a_newcomer_is_led_to_the_dashboard_and_sees_receipts(start: Callable[[], Process]) -> None:
    """The phones, the dashboard and, last, a link that logs in once are told when all is set up; receipts follow.

    Opened again where it logged in, the link leads to the dashboard. One push ends as a dead letter, one month is
    archived. A second process says that, and where, the first one runs.
    """
    demo = start()
    demo.hears("worker_started")
    told = eventually(lambda: demo.stdout if demo.stdout.count("\n") >= 5 else "", "it says where to look")
    assert re.fullmatch(
        r"\nMessages in the sandbox: http://127\.0\.0\.1:\d+\n"
        r"Dashboard: http://127\.0\.0\.1:\d+/dashboard\n"
        r"Log in, once and within 10 minutes: http://\S+/login\?code=\S+\n\n",
        told,
    )
    assert len(demo.lines("migrated")) == 1
    eventually(
        lambda: [line for line in demo.lines("run_finished", cycle="receipt") if line["counts"]],
        "receipts come back within seconds",
    )
    eventually(
        lambda: [line for line in demo.lines("run_finished") if line["counts"].get("notifications_failed")],
        "one push is a dead letter",
    )
    eventually(
        lambda: [line for line in demo.lines("run_finished") if line["counts"].get("months_verified")],
        "a month is in the archive",
    )
    login = re.findall(r"http://\S+/login\S+", told)[0]
    person = requests.Session()
    person.trust_env = False
    page = person.get(login, timeout=30)
    assert page.url.endswith("/dashboard")
    assert "login link (operator)" in page.text
    [sandbox] = re.findall(r"sandbox: (\S+)", told)
    assert "demo-ana" in person.get(sandbox, timeout=30).text
    phones = f"{sandbox}/sandbox/phones?limit=1000"
    eventually(
        lambda: set(NATIVE) <= {each.get("kind") for each in person.get(phones, timeout=30).json()["phones"]},
        "phones of FCM and APNs, and a browser, got something, too",
    )
    assert person.get(login, timeout=30).url.endswith("/dashboard")
    person.cookies.clear()
    assert person.get(login, timeout=30).status_code == 401
    person.close()
    second = start()
    said = eventually(
        lambda: second.stdout if second.stdout.count("\n") >= 7 else "", "the second one says where to look"
    )
    address = re.findall(r"Dashboard: (\S+)", told)[0]
    assert said.startswith(
        f"Relevo runs here already, as process {demo.pid}: its dashboard is {address}.\nThis one shares "
    )
    assert f"Dashboard: {address}\n" not in said
    assert second.stops() == 0
    assert demo.stops() == 0
