"""Signing in with a certified provider of identities, in a real browser: two groups are two roles, one of which sees no texts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from playwright.sync_api import sync_playwright

from support.dashboard_person import Person, sticks_out
from support.http_server import EVENT, Served, fan_out, free_port, phone
from support.optional_parts import find_part

pytestmark = [pytest.mark.needs("npm-packages"), pytest.mark.needs("chromium-headless-shell")]
PROGRAM = Path(__file__).parent / "node" / "identity_provider.mjs"
PACKAGE = "oidc-provider@9.13.3"
WAIT_MS = 60_000


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the provider, installed by its name."""
    folder = tmp_path_factory.mktemp("provider")
    install = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(folder), PACKAGE]
    subprocess.run(install, cwd=folder, check=True, capture_output=True, timeout=300)
    shutil.copy(PROGRAM, folder)
    return folder


@pytest.fixture
def groups(tmp_path: Path) -> Callable[..., None]:
    """Say who is in which groups: `groups(ana=["ops"])`."""

    def say(**people: list[str]) -> None:
        (tmp_path / "people.json").write_text(json.dumps(people))

    return say


@pytest.fixture
def known(
    installed: Path, serve: Callable[..., Served], groups: Callable[..., None], tmp_path: Path
) -> Iterator[Served]:
    """A Relevo that the provider knows; the provider is another site to browsers."""
    groups(ana=["ops"], bea=["support"], zoe=[])
    ours, theirs = free_port(), free_port()
    callback = f"http://127.0.0.1:{ours}/login/oidc/callback"
    given = {"callbacks": [callback], "people": str(tmp_path / "people.json"), "port": theirs}
    with subprocess.Popen(
        ["node", PROGRAM.name],
        cwd=installed,
        env={**os.environ, "PROVIDER": json.dumps(given)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as running:
        assert running.stdout
        issuer = running.stdout.readline().strip()
        yield serve(
            http_port=ours,
            oidc_issuer=issuer,
            oidc_client_id="relevo",
            oidc_client_secret="relevo-secret-" + "x" * 32,
            oidc_redirect_url=callback,
            oidc_roles=json.dumps({"ops": "operator", "support": "observer"}),
            oidc_scopes="openid,profile,groups",
            oidc_name="Acme",
        )
        running.kill()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless Chromium."""
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=find_part("chromium-headless-shell"), args=["--no-sandbox"])
        yield started
        started.close()


def window(chromium: Any) -> Any:
    """Open a window of a browser that knows nobody."""
    context = chromium.new_context()
    context.set_default_timeout(WAIT_MS)
    return context.new_page()


def log_in_there(page: Any, who: str) -> None:
    """Fill in the provider's own pages: who it is, and that Relevo may know."""
    page.fill("input[name=login]", who)
    page.fill("input[name=password]", "any")
    page.click("button[type=submit]")
    page.click("button[type=submit]:has-text('Continue')")


def sign_in(page: Any, served: Served, who: str, path: str = "/dashboard") -> None:
    """Log in by the button."""
    page.goto(served.server.url + path)
    page.click("text=Sign in with Acme")
    log_in_there(page, who)
    page.wait_for_url(served.server.url + path)


def test_two_groups_are_two_roles(known: Served, conn: psycopg.Connection[Any], chromium: Any) -> None:
    """An operator by group sees and composes; an observer by group sees that an event went out, and not what it says."""
    phone(conn)
    event = known.client("app").post("/v1/events", EVENT).json()["event_id"]
    fan_out(known)
    page = window(chromium)
    sign_in(page, known, "ana", f"/dashboard/events/{event}")
    assert "On its way" in page.inner_text("main")
    assert "ana Example (ana) (operator)" in page.inner_text("header")
    assert page.locator("nav >> text=Compose").count() == 1
    other = window(chromium)
    sign_in(other, known, "bea", f"/dashboard/events/{event}")
    assert "On its way" not in other.content()
    assert "(hidden)" in other.inner_text("main")
    assert "order-17" in other.inner_text("main")
    assert other.locator("nav >> text=Compose").count() == 0
    assert sticks_out(other) == []
    other.click("text=Log out")
    other.goto(known.server.url + "/dashboard")
    assert other.locator("text=Sign in with Acme").count() == 1
    assert sticks_out(other) == []


def test_whoever_has_no_group_any_more_is_out(known: Served, chromium: Any, groups: Callable[..., None]) -> None:
    """A person whose group was taken away cannot log in again, and the session that was left open ends with that."""
    page = window(chromium)
    sign_in(page, known, "ana")
    groups(ana=[], bea=["support"])
    again = window(chromium)
    again.goto(known.server.url + "/login")
    again.click("text=Sign in with Acme")
    log_in_there(again, "ana")
    again.wait_for_selector("text=none of your groups may see this dashboard")
    page.goto(known.server.url + "/dashboard")
    assert page.locator("text=Sign in with Acme").count() == 1


def test_a_code_for_another_client_is_worth_nothing(known: Served, chromium: Any) -> None:
    """A code that the provider gave for another app, brought to Relevo's address, logs nobody in."""
    person = Person(known, None)
    there = person.get("/login/oidc").headers["location"]
    assert "client_id=relevo" in there
    page = window(chromium)
    host = urlsplit(known.server.url).hostname
    cookie = {"name": "relevo_sign_on", "value": person.cookies["relevo_sign_on"], "domain": host, "path": "/"}
    page.context.add_cookies([cookie])
    page.goto(there.replace("client_id=relevo", "client_id=other"))
    log_in_there(page, "ana")
    page.wait_for_selector("text=The sign-on service did not log you in.")
    assert all(each["name"] != "relevo_session" for each in page.context.cookies())
