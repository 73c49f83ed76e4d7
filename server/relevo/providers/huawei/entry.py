"""The entry of a project with Huawei Push Kit in PUSH_PROJECTS_FILE."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from relevo.providers.huawei.facts import SERVICE
from relevo.providers.project_entry import Entry, Text

Origin = Annotated[str, StringConstraints(pattern=r"^https://[A-Za-z0-9.:\[\]-]{1,255}$")]


class HuaweiEntry(Entry):
    """Huawei: the app's id and its secret, and where the services are, if not in Huawei's usual place."""

    provider = SERVICE.name
    credential_field = "client_secret"
    one_of = ("client_secret_file", "client_secret")
    app_id: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,20}$")]
    client_secret_file: Text | None = None
    client_secret: Text | None = Field(None, repr=False)
    push_url: Origin = "https://push-api.cloud.huawei.com"
    token_url: Origin = "https://oauth-login.cloud.huawei.com"  # noqa: S105 an address


ENTRY = HuaweiEntry
