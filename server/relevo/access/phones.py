"""The rights of phones over HTTP, and how a phone proves which installation it is.

Three proofs: a token of the app's, a signature of the app's server, and the secret that the first call returned. Who
may claim what is decided by `judge` alone, a function of values.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from relevo.access.api_tokens import Token
from relevo.client import tokens, verbs
from relevo.client.signatures import (
    FORM,
    Claim,
    Signed,
    SigningKey,
    check_signature,
    could_hold,
    is_of_old_form,
    read_keys,
)
from relevo.client.values import Installation
from relevo.config import Settings
from relevo.core import push_hosts, queries
from relevo.core.errors import ConfigError, InvalidInputError, NotFoundError, RelevoError
from relevo.core.known_services import EXPO, SERVICES, WITH_HOST, listed
from relevo.core.push_hosts import Hosts
from relevo.core.webhook_names import name_in_project
from relevo.database.pool import Connection

_SQL = queries.load("phone_access")
_WRITTEN = re.compile(r"device_(?P<id>[0-9a-f]{32})_[A-Za-z0-9_-]{43}")
_NOTHING = hashlib.sha256(b"").digest()
_DEFAULT_PROJECT = "default"
_WEBHOOK = "webhook"
OF_PHONES = tuple(SERVICES)
"""Providers whose tokens lead to a phone or a browser and nowhere else: a phone may name them by itself."""


class NoProofError(RelevoError):
    """Nothing proves that the caller may speak for this installation."""


class NotAllowedError(RelevoError):
    """The caller has proven something, and it is not enough for this."""


@dataclass(frozen=True)
class Proof:
    """The proofs that a caller sends along."""

    token: Token | None = None
    """A token of the app's or an operator's, already verified."""
    secret: str | None = field(default=None, repr=False)
    signature: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Known:
    """An installation that is there, as far as its callers, or who wants its token, are judged by it."""

    installation_id: UUID
    project: str
    provider: str
    owner: str | None = None
    secret_hash: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Proven:
    """The result of a proof: the app asks, its server vouches, or this phone has the installation's secret."""

    by_app: Token | None = None
    signed: Signed | None = None
    by_secret: bool = False

    @property
    def by_signature(self) -> bool:
        """Whether a signature holds."""
        return self.signed is not None

    @property
    def is_vouched_for(self) -> bool:
        """Whether the app itself says so."""
        return self.by_app is not None or self.by_signature


@dataclass(frozen=True)
class Registered:
    """An installation that was registered over HTTP; the secret is returned this once and kept nowhere."""

    installation_id: UUID
    created: bool
    secret: str | None = field(repr=False)


@dataclass(frozen=True)
class DeviceRules:
    """The settings of an operator: keys of signatures, where strangers may register, and where Web Push may go."""

    keys: Mapping[str, SigningKey] = field(default_factory=dict)
    open_project: str | None = None
    push_hosts: Callable[[str], Hosts] = lambda _project: Hosts()
    """Where Web Push of a project may go, by the same list as when it is sent."""

    @classmethod
    def of(cls, settings: Settings, hosts: Callable[[str], Hosts]) -> DeviceRules:
        """Read them from the settings and the keys' file."""
        file = settings.http_signing_keys_file
        try:
            keys = {} if file is None else read_keys(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"HTTP_SIGNING_KEYS_FILE cannot be used: {error}.",
                hint='As in {"2026-11": {"secret": "…"}}; `openssl rand -base64 32` makes a secret.',
            ) from None
        return cls(keys, settings.http_open_registration, hosts)

    def check_endpoint(self, token: str, project: str) -> None:
        """Refuse a Web Push subscription whose address, which a phone chose, is none of a push service."""
        given = tokens.subscription(token)
        if given is None or not given.host:  # what is no subscription is refused by the SQL functions
            return
        place = push_hosts.place_of(given.host, given.port)
        if not self.push_hosts(project).allows(place):
            raise InvalidInputError(
                f"token.endpoint must be at a known push service, not at {place[:100]}.",
                hint="`hosts` of the project in PUSH_PROJECTS_FILE, or WEBPUSH_HOSTS, names further ones.",
            )


def judge(
    asked: Installation, known: Known | None, holder: Known | None, proven: Proven, open_project: str | None
) -> None:
    """Decide whether a caller may register this; refuse it if not."""
    if known is None:
        _judge_new(asked, proven, open_project)
    else:
        _judge_known(asked, known, proven)
    if holder is not None:
        _judge_move(asked, holder, proven)
    if _is_webhook(asked, known, holder) and proven.by_app is None:
        raise _webhooks_are_the_apps()


def judge_secret(
    asked: Installation, known: Known | None, holder: Known | None, proven: Proven, *, renew: bool
) -> bool:
    """Decide whether whoever registers this gets a secret: a new phone, one without any, or one that asks for it."""
    if _is_webhook(asked, known, holder):
        return False
    if known is None:
        return True
    if renew and not proven.is_vouched_for:
        raise NotAllowedError(
            "A secret is renewed only with a token or a signature of the app's server.",
            hint="Send a signature of the app's server.",
        )
    keeps = known.secret_hash is not None and asked.owner in (None, known.owner)  # another owner ends it
    return proven.is_vouched_for and (renew or not keeps)


def _is_webhook(asked: Installation, known: Known | None, holder: Known | None) -> bool:
    named = asked.provider, known.provider if known else None, holder.provider if holder else None
    return _WEBHOOK in named


def _webhooks_are_the_apps() -> NotAllowedError:
    return NotAllowedError(
        "This is a webhook of the app's, and neither a phone nor a signature for one may name or touch it.",
        hint="Use an app's token: Authorization: Bearer relevo_app_…",
    )


def _judge_move(asked: Installation, holder: Known, proven: Proven) -> None:
    """Decide whether a token moves here from the installation that has it."""
    if not proven.by_signature:
        raise NotAllowedError(
            "Another installation has this token, and only a signature of the app's server moves it here.",
            hint="Sign for this installation, and send X-Relevo-Signature.",
        )
    if holder.project != asked.project:
        raise NotAllowedError(
            "An installation of another project has this token, and tokens stay in their project.",
            hint="Forget that installation first, or use another token.",
        )


def _judge_new(asked: Installation, proven: Proven, open_project: str | None) -> None:
    if proven.is_vouched_for:
        if proven.by_app is not None and proven.by_app.project not in (None, asked.project):
            raise NotAllowedError("This token is for another project.", hint="Use one of the installation's project.")
        return
    if open_project is None or proven.by_secret:
        raise _no_proof()
    if asked.owner is not None or asked.provider not in (None, *OF_PHONES) or asked.project != open_project:
        raise NotAllowedError(
            f"Without a token or a signature a phone registers without owner, at {listed(OF_PHONES)}, in the open "
            "project.",
            hint="Send a signature of the app's server.",
        )


def _judge_known(asked: Installation, known: Known, proven: Proven) -> None:
    if not proven.is_vouched_for and not proven.by_secret:
        raise _no_proof()
    if proven.by_app is not None and proven.by_app.project not in (None, known.project):
        raise NotFoundError("There is no such installation in this token's project.")
    if asked.project != known.project:
        raise NotAllowedError("An installation stays in its project.", hint="Register another one there.")
    if proven.by_signature and proven.by_app is None and asked.owner is None and known.owner is not None:
        raise NotAllowedError("This installation has an owner, and the signature names none.", hint="Sign with it.")
    if proven.is_vouched_for:
        return
    if asked.owner not in (None, known.owner) or not _may_move(asked.provider, known.provider):
        raise NotAllowedError(
            f"The owner, and a provider that is not {listed(OF_PHONES)}, are changed only with a token or a signature "
            "of the app's server.",
            hint="Send a signature of the app's server.",
        )


def _may_move(asked: str | None, known: str) -> bool:
    """Return whether a phone may change its provider by itself, as when its app moves to tokens of its own."""
    return asked in (None, known) or (asked in OF_PHONES and known in OF_PHONES)


def _no_proof() -> NoProofError:
    return NoProofError(
        "The call does not prove that this phone is this installation.",
        hint="Send the secret of the first call, an app's token, or X-Relevo-Signature of the app's server.",
    )


def register(
    connection: Connection, rules: DeviceRules, asked: Installation, proof: Proof, now: float, *, renew: bool = False
) -> Registered:
    """Register or refresh an installation, for whoever may; all in the caller's transaction, or nothing.

    Whoever may not is refused before anything is locked. It is judged once more under the locks, by what is there then.
    """
    assert asked.installation_id is not None
    given, holder = asked, None
    asked, known, proven = _prove_now(connection, rules, given, proof, now)
    judge(asked, known, holder, proven, rules.open_project)
    holder = _lock(connection, asked)
    asked, known, proven = _prove_now(connection, rules, given, proof, now)
    judge(asked, known, holder, proven, rules.open_project)
    if (asked.provider or (known.provider if known else EXPO)) in WITH_HOST and asked.token is not None:
        rules.check_endpoint(asked.token, asked.project or _DEFAULT_PROJECT)
    gives_secret = judge_secret(asked, known, holder, proven, renew=renew)
    if proven.signed is not None:
        _use_up(connection, proven.signed)
    _expect(connection, new=known is None, free=holder is None)
    if verbs.register(connection, asked) != asked.installation_id:
        raise NotAllowedError("This token belongs to another installation.", hint="Register under its id.")
    secret = new_secret(connection, asked.installation_id) if gives_secret else None
    return Registered(asked.installation_id, known is None, secret)


def _prove_now(
    connection: Connection, rules: DeviceRules, asked: Installation, proof: Proof, now: float
) -> tuple[Installation, Known | None, Proven]:
    """Read an installation without a lock, and check the proof; return what is asked with its project, too."""
    assert asked.installation_id is not None
    known = _known(connection, asked.installation_id)
    asked = replace(asked, project=asked.project or _usual_project(known, proof, rules))
    caller = proof.token.project if proof.token else None
    if caller is not None and asked.token is not None and _is_webhook(asked, known, None):
        asked = replace(asked, token=name_in_project(caller, asked.token))
    return asked, known, prove(rules, asked, known, proof, now)


def check_form(rules: DeviceRules, signature: str, now: float) -> None:
    """Refuse a signature that cannot hold for anything: of another form or an unknown key, or out of time."""
    if is_of_old_form(signature):
        raise NoProofError(
            "Signatures of the form v1 are not accepted any more: they cover neither provider nor token.",
            hint=f"Sign as {FORM}: relevo.sign_installation of this version does, and the recipe for phones says how.",
        )
    if not could_hold(rules.keys, signature, now):
        raise _does_not_hold()


def _does_not_hold() -> NoProofError:
    return NoProofError(
        "The signature is not valid: it is for something else, too old, or of an unknown key.",
        hint="Sign project, installation, owner, provider and token just as they are sent, for at most 10 minutes.",
    )


def check_signed(rules: DeviceRules, asked: Installation, signature: str, now: float) -> Signed:
    """Return the signature if it holds for an installation in its project; refuse it if not. No database is asked."""
    assert asked.installation_id is not None
    check_form(rules, signature, now)
    project = asked.project or _DEFAULT_PROJECT
    claim = Claim(project, asked.installation_id, asked.owner, asked.provider, asked.token)
    signed = check_signature(rules.keys, signature, claim, now)
    if signed is None:
        raise _does_not_hold()
    return signed


def _use_up(connection: Connection, signed: Signed) -> None:
    """Note that a signature was used, whichever replica it came to; one that came before is refused."""
    used = {"digest": signed.digest, "expires": signed.expires}
    if connection.execute(_SQL["use_signature"], used).rowcount == 0:
        raise NoProofError("This signature was used before.", hint="Send a new signature with each call.")


def _expect(connection: Connection, *, new: bool, free: bool) -> None:
    """Raise as busy if another transaction changed the installation after it was judged: a retry judges anew."""
    expects = ["new installation"] * new + ["free token"] * free
    connection.execute(_SQL["expect_state"], {"expects": ", ".join(expects)})


def prove(rules: DeviceRules, asked: Installation, known: Known | None, proof: Proof, now: float) -> Proven:
    """Check what a caller brings along; a signature that does not hold is refused, whatever else there is."""
    assert asked.installation_id is not None
    by_secret = _is_secret(known, proof.secret)
    if proof.signature is None:
        return Proven(proof.token, None, by_secret)
    return Proven(proof.token, check_signed(rules, asked, proof.signature, now), by_secret)


def admit(connection: Connection, installation_id: UUID, proof: Proof) -> Known:
    """Admit callers who may read and change an installation: its phone and the app; nobody else learns anything.

    Return whose it is, as it was judged by this one read: between two of them the phone could get another owner.
    """
    known = _known(connection, installation_id)
    if known is not None and _is_phone(known, proof):
        return known
    if proof.token is None:
        raise _no_proof()
    if known is None or proof.token.project not in (None, known.project):
        raise not_found(installation_id)
    return known


def _is_phone(known: Known, proof: Proof) -> bool:
    if not _is_secret(known, proof.secret):
        return False
    if known.provider == _WEBHOOK:
        raise _webhooks_are_the_apps()
    return True


def admit_reader(connection: Connection, proof: Proof) -> Known:
    """Admit any phone that proves which one it is; return it as it is now."""
    found = _WRITTEN.fullmatch(proof.secret or "")
    known = _known(connection, UUID(found["id"])) if found else None
    if known is None or not _is_phone(known, proof):
        raise _no_proof()
    return known


def project_of(connection: Connection, installation_id: UUID) -> str | None:
    """Return the project of an installation, if it is there."""
    known = _known(connection, installation_id)
    return known.project if known else None


def _usual_project(known: Known | None, proof: Proof, rules: DeviceRules) -> str:
    if known is not None:
        return known.project
    if proof.token is not None or proof.signature is not None:
        return (proof.token.project if proof.token else None) or _DEFAULT_PROJECT
    return rules.open_project or _DEFAULT_PROJECT


def _known(connection: Connection, installation_id: UUID) -> Known | None:
    row = connection.execute(_SQL["read_device"], {"installation_id": installation_id}).fetchone()
    if row is None:
        return None
    *columns, is_for_news = row
    if is_for_news:  # an address of the app's own, which nobody reaches from outside
        raise not_found(installation_id)
    return Known(installation_id, *columns)


def _lock(connection: Connection, asked: Installation) -> Known | None:
    """Lock an installation and whoever else has its token, so that both stay as they are read; return the other."""
    names = {"installation_id": asked.installation_id, "token": asked.token, "token_hash": None}
    names |= {"provider": asked.provider, "environment": asked.environment}
    connection.execute(_SQL["lock_device"], names)
    if asked.token is not None:
        names["token_hash"], _ = connection.execute(_SQL["lock_token"], names).fetchone() or (None, None)
    if asked.owner is not None:
        connection.execute(_SQL["lock_owner"], {"owner": asked.owner})
    locked = connection.execute(_SQL["lock_phones"], names).fetchall()
    return next((Known(*row) for row in locked if row[0] != asked.installation_id), None)


def _is_secret(known: Known | None, secret: str | None) -> bool:
    """Return whether this is the installation's secret, in a time that gives nothing away."""
    kept = known.secret_hash if known is not None else None
    fits = hmac.compare_digest(bytes(kept) if kept else _NOTHING, _hash(secret or ""))
    found = _WRITTEN.fullmatch(secret or "")
    return (
        fits
        and known is not None
        and kept is not None
        and found is not None
        and found["id"] == known.installation_id.hex
    )


def new_secret(connection: Connection, installation_id: UUID) -> str:
    """Give an installation a secret in place of the one it had; for callers that may do so."""
    secret = f"device_{installation_id.hex}_{secrets.token_urlsafe(32)}"
    kept = {"installation_id": installation_id, "secret_hash": _hash(secret)}
    connection.execute(_SQL["keep_secret"], kept)
    return secret


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def not_found(installation_id: UUID) -> NotFoundError:
    """Return the error for an installation that is not there, or not for the caller to see."""
    return NotFoundError(f"There is no installation {installation_id}.")
