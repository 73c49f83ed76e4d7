"""The guide's tables have what the code has, and the numbers in its sentences are the code's."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

import pytest

import http_docs
import relevo
from relevo.client import values
from relevo.config import load
from relevo.core.known_services import SERVICES
from relevo.embedded import binaries
from relevo.operators.event_types import TypeSettings
from support.docs_pages import DOCS, ROOT

DEFAULTS = load({"DATABASE_URL": "postgresql://relevo@db.example/app"}, None)
PYTHON = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["requires-python"].removeprefix(">=")
README = ROOT / "README.md"


def default(name: str) -> int:
    """Return the default of a setting."""
    return int(getattr(DEFAULTS, name))


def minutes(numbers: Iterable[int]) -> str:
    """Write pauses in milliseconds as the guide does."""
    return ", ".join(str(each // 60_000) for each in numbers)


def pauses() -> list[int]:
    """Return the pauses before each retry, by the settings' defaults."""
    first, longest = default("outbox_retry_base_ms"), default("outbox_retry_max_ms")
    return [min(first * 2**tried, longest) for tried in range(default("outbox_max_attempts") - 1)]


SENTENCES = [
    ("states-and-errors.md", f"Relevo retries after {minutes(pauses())} minutes"),
    ("states-and-errors.md", f"at most {default('outbox_max_attempts')} attempts in all"),
    ("states-and-errors.md", f"its receipt {default('receipt_first_poll_ms') // 60_000} minutes later"),
    ("promises.md", f"a rate: {default('push_rate_per_second')} pushes a second"),
    ("promises.md", f"at most {default('outbox_concurrency')} requests at once"),
    ("what-it-is.md", f"PostgreSQL ({binaries.OLDEST} to {binaries.NEWEST})"),
    ("quickstart.md", f"Python {PYTHON} or newer"),
    ("quickstart.md", f"If port {default('http_port')} is taken"),
    ("in-your-app.md", f"HTTP on 127.0.0.1:{default('http_port')}"),
]
"""What a page says of a version or a number, as the code has it."""


@pytest.mark.parametrize(("page", "sentence"), SENTENCES)
def test_a_number_is_the_codes(page: str, sentence: str) -> None:
    """The sentence is on its page with today's number."""
    assert sentence in " ".join((DOCS / page).read_text("utf-8").split())


@pytest.mark.parametrize("page", [README, DOCS / "index.md", DOCS / "what-it-is.md"], ids=lambda page: page.name)
def test_every_push_service_is_named(page: Path) -> None:
    """A page that tells strangers what Relevo is names each service it sends by."""
    text = page.read_text("utf-8")
    assert [each.label for each in SERVICES.values() if each.label not in text] == []


@pytest.mark.parametrize("page", ["reference-events.md", "recipes-http.md"])
def test_every_provider_is_named(page: str) -> None:
    """A page that lists what `provider` may be lists each push service."""
    text = (DOCS / page).read_text("utf-8")
    assert [name for name in SERVICES if f"`{name}`" not in text] == []


def rows(page: str, heading: str) -> set[str]:
    """Return the names in the first column of the tables below a heading."""
    text = (DOCS / page).read_text("utf-8")
    part = re.split(r"^## ", text.partition(f"\n## {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return {name for row in re.findall(r"^\| (`[^|]*`) \|", part, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}


@pytest.mark.parametrize(
    ("heading", "of"),
    [
        ("Event", values.Event),
        ("Installation", values.Installation),
        ("Preference", values.Preference),
        ("Event type", TypeSettings),
    ],
)
def test_every_field_has_its_row(heading: str, of: type) -> None:
    """The reference has each field of the class that apps fill in."""
    assert {each.name for each in fields(of)} - rows("reference-events.md", heading) == set()  # type: ignore[arg-type]


@pytest.mark.parametrize(("schema", "heading"), [(name, told[0]) for name, told in http_docs.REFERENCE.items()])
def test_a_field_that_the_http_page_leaves_out_is_in_the_reference(schema: str, heading: str) -> None:
    """A body whose fields the page of the HTTP API leaves to the reference has each of them in the section it names."""
    place = heading.partition("#")[2].partition(")")[0]
    page = (
        (DOCS / "reference-events.md").read_text("utf-8").partition(f"\n## {place.replace('-', ' ').capitalize()}\n")[2]
    )
    section = re.split(r"^## ", page, maxsplit=1, flags=re.MULTILINE)[0]
    fields = http_docs.document()["components"]["schemas"][schema]["properties"].keys() - http_docs.REFERENCE[schema][1]
    assert section
    assert {name for name in fields if not re.search(rf"`{name}`|\"{name}\"", section)} == set()


def test_every_function_of_the_client_is_on_one_page() -> None:
    """The page on what an app can do names each public function of `relevo`."""
    page = (DOCS / "in-your-app.md").read_text("utf-8")
    functions = {name for name in relevo.__all__ if inspect.isfunction(getattr(relevo, name))}
    assert len(functions) > 30
    assert {name for name in functions if f"`{name}`" not in page} == set()
