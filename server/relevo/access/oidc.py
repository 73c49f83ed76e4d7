"""Sign-on by OpenID Connect at one provider of identities: an authorization code with PKCE, state and nonce."""

from __future__ import annotations

import base64
import binascii
import io
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from relevo.config import Settings
from relevo.core.addresses import is_local
from relevo.core.errors import MissingPartError, RelevoError
from relevo.core.proxies import Proxies

if TYPE_CHECKING:
    from collections.abc import Iterator

    from authlib.integrations.requests_client import OAuth2Session

SIGN_ON_S = 15.0
"""How long the provider may take for all requests of one login."""
_ANSWER_S = 5.0
_MOST_BYTES = 1_000_000
_PIECE = 65_536
_FRESH_S = 3_600.0
"""For how long the provider's metadata and keys are kept."""
_AGAIN_S = 10.0
"""How often a failed request for metadata, or keys that do not fit, are asked for again at most."""
_LEEWAY_S = 60
"""How far the provider's clock may be off."""
_LATELY_S = 300
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")
"""Signatures with a public key alone: neither none, nor one that whoever knows the client's secret could make."""
_MOST_GROUPS = 1_000
_MOST_SUBJECT, _MOST_NAME = 255, 100


class SignOnError(RelevoError):
    """The provider's answer is not good; the message says why, for the log and the audit log."""


class ProviderDownError(SignOnError):
    """The provider cannot be reached, or does not answer as one; trying again later is right."""


@dataclass(frozen=True)
class Attempt:
    """A login that began: what only the browser that began it knows, in a cookie of its own."""

    state: str
    nonce: str
    verifier: str
    after: str
    """The page that was asked for."""
    again: bool = False
    """Whether a person with a session proves to be there, before a grave action."""

    @classmethod
    def begin(cls, after: str, *, again: bool = False) -> Attempt:
        """Begin a login."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        return cls(state, nonce, verifier, after, again)

    def written(self) -> str:
        """Write it for its cookie."""
        return base64.urlsafe_b64encode(json.dumps(asdict(self)).encode()).decode()

    @classmethod
    def read(cls, written: str) -> Attempt | None:
        """Read it from its cookie, or return None if that is none of ours."""
        try:
            given = json.loads(base64.urlsafe_b64decode(written.encode()))
            found = cls(**given)
        except (ValueError, TypeError, binascii.Error, RecursionError):
            return None
        texts = (found.state, found.nonce, found.verifier, found.after)
        return found if all(isinstance(each, str) and each for each in texts) else None


@dataclass(frozen=True)
class Identity:
    """A person as the provider knows them."""

    issuer: str
    subject: str
    """By this the provider names the person for ever; a name or an address may be another person's tomorrow."""
    name: str
    groups: frozenset[str]


@dataclass(frozen=True)
class _Kept:
    """Something the provider published, and when it was read."""

    value: Mapping[str, Any]
    at: float


class Provider:
    """The provider of identities of the settings; its metadata and keys are kept for an hour."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        _need_authlib()
        assert settings.oidc_issuer is not None
        self._settings = settings
        self._issuer: str = settings.oidc_issuer
        self._clock = clock
        self._lock = threading.Lock()
        self._metadata: _Kept | None = None
        self._keys: _Kept | None = None
        self._failed: tuple[float, str] | None = None

    def address(self, attempt: Attempt) -> str:
        """Return where the browser goes to log in."""
        with self._session() as session:
            endpoint = self._endpoint(session, "authorization_endpoint")
            more = {"prompt": "login", "max_age": "0"} if attempt.again else {}
            address, _state = session.create_authorization_url(
                endpoint, state=attempt.state, nonce=attempt.nonce, code_verifier=attempt.verifier, **more
            )
        return str(address)

    def identify(self, attempt: Attempt, code: str, issuer: str | None) -> Identity:
        """Exchange the code that a browser brought for who logged in; raises SignOnError."""
        if not code:
            raise SignOnError("The provider logged nobody in.")
        with self._session() as session:
            tells_issuer = self._read_metadata(session).get("authorization_response_iss_parameter_supported") is True
            if issuer != self._issuer and (tells_issuer or issuer is not None):
                raise SignOnError("The answer is another provider's.")
            token = self._exchange(session, attempt, code)
            claims = self._checked(session, attempt, token)
            return self._identity({**self._user_info(session, claims), **claims})

    def _exchange(self, session: OAuth2Session, attempt: Attempt, code: str) -> Mapping[str, Any]:
        from authlib.integrations.base_client import OAuthError  # noqa: PLC0415 an extra

        endpoint = self._endpoint(session, "token_endpoint")
        session.token_endpoint_auth_method = self._auth_method(session)
        try:
            given = {"grant_type": "authorization_code", "code": code, "code_verifier": attempt.verifier}
            found = session.fetch_token(endpoint, **given, allow_redirects=False)
        except OAuthError as error:
            raise SignOnError(f"The provider refused the code: {_word(error.error)}.") from None
        except (requests.RequestException, ValueError) as error:
            raise _down(error) from None
        if not isinstance(found, Mapping) or not isinstance(found.get("id_token"), str):
            raise SignOnError("The provider sent no ID token.")
        return found

    def _auth_method(self, session: OAuth2Session) -> str:
        if self._settings.oidc_client_secret is None:
            return "none"
        known = self._read_metadata(session).get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        return "client_secret_basic" if "client_secret_basic" in known else "client_secret_post"

    def _checked(self, session: OAuth2Session, attempt: Attempt, token: Mapping[str, Any]) -> dict[str, Any]:
        """Check the ID token: whose, for whom, of when, for this login; return its claims."""
        from authlib.oidc.core import CodeIDToken  # noqa: PLC0415 an extra
        from joserfc.errors import JoseError  # noqa: PLC0415 an extra

        header, found = self._verified(session, token["id_token"])
        client = self._settings.oidc_client_id
        wanted = {"iss": {"essential": True, "value": self._issuer}, "aud": {"essential": True, "value": client}}
        known = {"nonce": attempt.nonce, "client_id": client, "access_token": token.get("access_token")}
        claims = CodeIDToken(found, header, wanted, known)
        try:
            claims.validate(now=int(time.time()), leeway=_LEEWAY_S)
        except (JoseError, TypeError, ValueError) as error:
            raise SignOnError(f"The ID token is not valid: {_word(str(error).partition(':')[0])}.") from None
        if attempt.again and not _is_lately(claims.get("auth_time")):
            raise SignOnError("The provider did not ask the person to log in again.")
        return dict(claims)

    def _verified(self, session: OAuth2Session, written: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return header and claims of an ID token that a key of the provider signed; looks for new keys once."""
        from joserfc import jwt  # noqa: PLC0415 an extra
        from joserfc.errors import JoseError  # noqa: PLC0415 an extra
        from joserfc.jwk import KeySet  # noqa: PLC0415 an extra

        supported = self._read_metadata(session).get("id_token_signing_alg_values_supported") or ["RS256"]
        algorithms = [each for each in _ALGORITHMS if each in supported]
        for fresh in (False, True):
            try:
                published: Any = dict(self._read_keys(session, fresh=fresh))
                keys = KeySet.import_key_set(published)
                found = jwt.decode(written, keys, algorithms=algorithms)
            except (JoseError, ValueError, TypeError, KeyError):
                continue
            else:
                return dict(found.header), dict(found.claims)
        raise SignOnError("The ID token is not signed by the provider.")

    def _user_info(self, session: OAuth2Session, claims: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what the provider tells of the person beside the ID token, if that does not name the groups."""
        endpoint = self._read_metadata(session).get("userinfo_endpoint")
        if not endpoint or _claim(claims, self._settings.oidc_groups_claim) is not None:
            return {}
        found = _read(session, self._safe(endpoint), with_token=True)
        if found.get("sub") != claims["sub"]:
            raise SignOnError("The provider told of another person.")
        return found

    def _identity(self, claims: Mapping[str, Any]) -> Identity:
        subject = claims["sub"]
        if not isinstance(subject, str) or not 0 < len(subject) <= _MOST_SUBJECT or not subject.isprintable():
            raise SignOnError("The provider names the person by no usable sub.")
        given = _claim(claims, self._settings.oidc_groups_claim)
        groups = [given] if isinstance(given, str) else given if isinstance(given, list) else []
        names = [claims.get(each) for each in ("name", "preferred_username", "email")]
        name = next((each for each in names if isinstance(each, str) and each.strip()), "a person")
        shown = " ".join("".join(letter for letter in name if letter.isprintable()).split())[:_MOST_NAME]
        kept = frozenset(each for each in groups[:_MOST_GROUPS] if isinstance(each, str))
        return Identity(self._issuer, subject, shown, kept)

    def _endpoint(self, session: OAuth2Session, name: str) -> str:
        return self._safe(self._read_metadata(session).get(name))

    def _safe(self, address: object) -> str:
        """Return an address of the provider: by TLS, as the issuer is, unless that is on this machine."""
        parts = urlsplit(address if isinstance(address, str) else "")
        good = parts.scheme == "https" or (parts.scheme == "http" and is_local(parts.hostname or ""))
        if not good:
            raise ProviderDownError("The provider's metadata lacks an address, or names one without TLS.")
        return str(address)

    def _read_metadata(self, session: OAuth2Session) -> Mapping[str, Any]:
        with self._lock:
            if self._metadata is not None and self._clock() - self._metadata.at < _FRESH_S:
                return self._metadata.value
            with self._remembering():
                address = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
                found = _read(session, address)
                if found.get("issuer") != self._issuer:
                    raise ProviderDownError("The provider calls itself another name than OIDC_ISSUER.")
            self._metadata = _Kept(found, self._clock())
            return found

    def _read_keys(self, session: OAuth2Session, *, fresh: bool) -> Mapping[str, Any]:
        """Return the provider's keys; with `fresh` those of now, unless they were read a moment ago."""
        endpoint = self._endpoint(session, "jwks_uri")
        with self._lock:
            if self._keys is not None and self._clock() - self._keys.at < (_AGAIN_S if fresh else _FRESH_S):
                return self._keys.value
            with self._remembering():
                found = _read(session, endpoint)
            self._keys = _Kept(found, self._clock())
            return found

    @contextmanager
    def _remembering(self) -> Iterator[None]:
        """Remember for a moment that the provider is away, so that not every login waits for it."""
        if self._failed is not None and self._clock() - self._failed[0] < _AGAIN_S:
            raise ProviderDownError(self._failed[1])
        try:
            yield
        except ProviderDownError as error:
            self._failed = (self._clock(), error.message)
            raise

    def _session(self) -> OAuth2Session:
        """Return what makes the requests of one login, all together within its time."""
        from authlib.integrations.requests_client import OAuth2Session  # noqa: PLC0415 an extra

        settings = self._settings
        secret = settings.oidc_client_secret
        session = OAuth2Session(
            settings.oidc_client_id,
            secret.get_secret_value() if secret else None,
            scope=" ".join(settings.oidc_scopes),
            redirect_uri=settings.oidc_redirect_url,
            code_challenge_method="S256",
            leeway=0,  # of the access token, which is used at once
        )
        session.trust_env = False
        session.verify = str(settings.oidc_ca_file) if settings.oidc_ca_file else True
        adapter = _Bounded(settings.proxies, time.monotonic() + SIGN_ON_S)
        for scheme in ("https://", "http://"):
            session.mount(scheme, adapter)
        return session


class _Bounded(HTTPAdapter):
    """Reads an answer whole: up to a size, and before the time of its login is over, however slowly it flows."""

    def __init__(self, proxies: Proxies, until: float) -> None:
        super().__init__()
        self._proxies, self._until = proxies, until

    def send(self, request: requests.PreparedRequest, *_args: Any, **options: Any) -> requests.Response:
        """Send a request, and read its answer."""
        address = request.url or ""
        proxy = self._proxies.for_url(address)
        chosen = {"proxies": {urlsplit(address).scheme: proxy} if proxy else {}, "verify": options.get("verify", True)}
        answer = super().send(request, stream=True, timeout=self._left(), **chosen)
        body = bytearray()
        try:
            while piece := answer.raw.read1(_PIECE, decode_content=True):
                body += piece
                if len(body) > _MOST_BYTES:
                    raise requests.exceptions.ContentDecodingError("The answer is too large.")
                self._left()
        except HTTPError as error:
            raise requests.exceptions.ConnectionError(type(error).__name__) from None
        finally:
            answer.raw.close()
        answer.raw = io.BytesIO(bytes(body))
        return answer

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise requests.exceptions.ReadTimeout("The login took too long.")
        return min(_ANSWER_S, left)


def _read(session: OAuth2Session, address: str, *, with_token: bool = False) -> dict[str, Any]:
    """Return the object that is at an address of the provider; no redirect is followed."""
    from authlib.integrations.base_client import OAuthError  # noqa: PLC0415 an extra

    try:
        answer = session.request("GET", address, withhold_token=not with_token, allow_redirects=False)
    except (requests.RequestException, OAuthError) as error:
        raise _down(error) from None
    if answer.status_code != requests.codes.ok:
        raise ProviderDownError(f"The provider answered {answer.status_code}.")
    try:
        found = answer.json()
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ProviderDownError("The provider did not answer with a JSON object.")
    return found


def _down(error: Exception) -> ProviderDownError:
    """Return the error for a provider that is away; no address and no parameter of a request is told."""
    return ProviderDownError(f"The provider does not answer: {type(error).__name__}.")


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by its name, or by a path to it with dots, as Keycloak's realm_access.roles."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _is_lately(moment: object) -> bool:
    return isinstance(moment, int | float) and time.time() - moment < _LATELY_S


def _word(said: object) -> str:
    """Return what a provider said, if it is a word such as invalid_grant."""
    word = str(said)[:50]
    return word if word.replace("_", "").isalnum() and word.isascii() else "an error"


def _need_authlib() -> None:
    try:
        import authlib  # noqa: F401, PLC0415 whether it is there
    except ModuleNotFoundError:
        hint = "Install it: pip install 'relevo[oidc]'"
        raise MissingPartError("OIDC_ISSUER is set, and Authlib is not installed.", hint=hint) from None
