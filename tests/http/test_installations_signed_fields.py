"""Which fields of a registration its signature covers, and what is read of a body that is no good: by table."""

from __future__ import annotations

import json

import pytest

from relevo.http.installations import InstallationBody, _signed_fields

MANY = {f"x{number}": 1 for number in range(len(InstallationBody.model_fields))}


@pytest.mark.parametrize(
    ("body", "token", "project"),
    [
        (b"{", None, "default"),
        (b"[]", None, "default"),
        (b'"x"', None, "default"),
        ({"token": 5}, None, "default"),
        ({"token": "t", "project": ["shop"]}, None, "default"),
        ({"token": "t"}, "t", None),
        ({"token": "t", "project": "shop"}, "t", "shop"),
        ({"token": "t", **MANY}, "t", "default"),
        ({"token": "t", "project": "shop", **MANY}, "t", "shop"),
    ],
)
def test_what_is_signed(body: bytes | dict[str, object], token: str | None, project: str | None) -> None:
    """Where no project is named the phone's is looked up, but not for a body that is refused anyway."""
    fields = _signed_fields(body if isinstance(body, bytes) else json.dumps(body).encode())
    assert (fields["token"], fields["project"]) == (token, project)
