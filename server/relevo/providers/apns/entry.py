"""The entry of a project with APNs in PUSH_PROJECTS_FILE."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from relevo.providers.apns.facts import SERVICE
from relevo.providers.project_entry import Entry, Text


class ApnsEntry(Entry):
    """APNs: a signing key (.p8), its names, and the app's bundle id."""

    provider = SERVICE.name
    credential_field = "key"
    one_of = ("key_file", "key")
    key_file: Text | None = None
    key: Text | None = Field(None, repr=False)
    key_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]{1,20}$")]
    team_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]{1,20}$")]
    topic: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.-]{1,255}$")]


ENTRY = ApnsEntry
