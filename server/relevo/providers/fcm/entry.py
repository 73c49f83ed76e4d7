"""The entry of a project with FCM in PUSH_PROJECTS_FILE."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from relevo.providers.fcm.facts import SERVICE
from relevo.providers.project_entry import Entry, Text


class FcmEntry(Entry):
    """FCM: a service account, or the machine's own credentials, for which no secret stands."""

    provider = SERVICE.name
    credential_field = "service_account"
    one_of = ("service_account_file", "service_account", "default_credentials")
    service_account_file: Text | None = None
    service_account: dict[str, Any] | None = Field(None, repr=False)
    default_credentials: bool = False
    project_id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9:.-]{1,100}$")] | None = None
    target: Literal["token", "fid"] = "token"
    """The field of a message that holds a phone's token: Google replaces `token` by `fid`."""


ENTRY = FcmEntry
