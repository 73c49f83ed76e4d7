"""The entry of a project with Expo in PUSH_PROJECTS_FILE."""

from __future__ import annotations

from pydantic import Field

from relevo.providers.expo.facts import SERVICE
from relevo.providers.project_entry import Entry, Word


class ExpoEntry(Entry):
    """Expo: the access token of enhanced push security."""

    provider = SERVICE.name
    credential_field = "access_token"
    access_token: Word | None = Field(None, repr=False)


ENTRY = ExpoEntry
