"""The entry of a project with Web Push in PUSH_PROJECTS_FILE."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from relevo.providers.project_entry import Entry, Text
from relevo.providers.webpush.facts import SERVICE


class WebPushEntry(Entry):
    """Web Push: the private key of the VAPID pair, whom push services may write to, and further push hosts."""

    provider = SERVICE.name
    credential_field = "private_key"
    one_of = ("private_key_file", "private_key")
    private_key_file: Text | None = None
    private_key: Text | None = Field(None, repr=False)
    subject: Annotated[str, StringConstraints(pattern=r"^(mailto:[!-~]+@[!-~]+|https://[!-~]+)$", max_length=500)]
    hosts: tuple[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.:-]{1,255}$")], ...] = Field((), strict=False)
    page: Annotated[str, StringConstraints(pattern=r"^https://[!-~]+$", max_length=500)] | None = None
    """Where the site is: with it messages are declarative, too, and links are relative to it."""


ENTRY = WebPushEntry
