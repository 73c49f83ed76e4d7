"""Sign-on by OpenID Connect: the provider of identities, this client there, and what its groups may do here."""

from __future__ import annotations

import json
from typing import Annotated, Any, NamedTuple, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr

from relevo.config.kinds import ExistingFile, Names, WebAddress, text_like
from relevo.config.setting import Theme, tuning
from relevo.core.addresses import is_local

SIGN_ON = "/login/oidc"
CALLBACK = f"{SIGN_ON}/callback"
ROLES = ("observer", "viewer", "operator")
"""The roles of people, the highest last."""
_SHAPE = 'must be a JSON object of groups and roles, as in {"ops": "operator", "support": "observer"}'


class GroupRole(NamedTuple):
    """What the members of a group may do."""

    group: str
    role: str

    def __str__(self) -> str:
        return f"{self.group}: {self.role}"


def _roles(given: object) -> object:
    if not isinstance(given, str):
        return given
    try:
        found = json.loads(given)
    except ValueError:
        raise ValueError(_SHAPE) from None
    if not isinstance(found, dict) or not found or not all(isinstance(each, str) for each in found.values()):
        raise ValueError(_SHAPE)
    return tuple(GroupRole(str(group), role) for group, role in found.items())


def _known(given: tuple[Any, ...]) -> tuple[GroupRole, ...]:
    if wrong := [each.role for each in given if each.role not in ROLES]:
        raise ValueError(f"must have roles out of {', '.join(ROLES)}, got {str(wrong[0])[:50]}")
    return cast("tuple[GroupRole, ...]", given)


def _by_tls(address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme != "https" and not is_local(parts.hostname or ""):
        raise ValueError("must begin with https://, except on this machine")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("must have no user, query or fragment")
    return address


def _callback(address: str) -> str:
    if not urlsplit(address).path.endswith(CALLBACK):
        raise ValueError(f"must end with {CALLBACK}")
    return address


Roles = Annotated[tuple[GroupRole, ...], BeforeValidator(_roles), AfterValidator(_known)]
Issuer = Annotated[WebAddress, AfterValidator(_by_tls)]
Words = Annotated[str, text_like(r"[^\x00-\x1f]{1,200}", "1 to 200 characters")]


class SignOn(Theme):
    """Sign-on to the dashboard by OpenID Connect."""

    oidc_issuer: Issuer | None = tuning(
        "The provider of identities for the dashboard (OpenID Connect), such as https://login.example/realms/acme, as "
        "it calls itself. Needs the extra oidc."
    )
    oidc_client_id: Words | None = tuning("What the provider calls this Relevo.")
    oidc_client_secret: SecretStr | None = tuning(
        "The secret of OIDC_CLIENT_ID at the provider; without it PKCE alone proves who asks."
    )
    oidc_redirect_url: Annotated[Issuer, AfterValidator(_callback)] | None = tuning(
        f"Where the provider sends people back, as it knows that: Relevo's own address with {CALLBACK}."
    )
    oidc_roles: Roles | None = tuning(
        'What a group of the provider may do, as a JSON object: {"ops": "operator", "support": "observer"}. Of several '
        "the highest holds; who is in none is refused."
    )
    oidc_groups_claim: Words = tuning(
        "The claim that lists a person's groups; dots lead into objects, as in realm_access.roles.", "groups"
    )
    oidc_scopes: Names = tuning("The scopes that Relevo asks for (comma-separated).", ("openid", "profile", "email"))
    oidc_name: Words = tuning("What the login page calls the provider, after the words Sign in with.", "single sign-on")
    oidc_ca_file: ExistingFile | None = tuning("Certificates in PEM by which the provider's is checked.")
