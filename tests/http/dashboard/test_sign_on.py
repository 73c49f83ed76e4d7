"""Signing in with a provider of identities: groups become roles, and no answer that is not the provider's to this login is taken."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from relevo.access import api_tokens, oidc, sign_on
from relevo.access.oidc import Attempt
from relevo.core.errors import ConfigError, NotFoundError
from relevo.operators import audit
from support.dashboard_person import Person
from support.http_server import Served
from support.identity_provider import (
    CLIENT,
    PLACE,
    SECRET,
    IdentityProvider,
    another_key,
    elliptic_key,
    symmetric_key,
)

ROLES = {"ops": "operator", "team": "viewer", "support": "observer"}


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    """A provider on loopback."""
    made = IdentityProvider()
    yield made
    made.close()


def settings_for(provider: IdentityProvider, **more: str) -> dict[str, str]:
    """Return the settings of a Relevo that this provider knows."""
    return {
        "oidc_issuer": provider.url,
        "oidc_client_id": CLIENT,
        "oidc_client_secret": SECRET,
        "oidc_redirect_url": f"http://127.0.0.1{PLACE}",
        "oidc_roles": json.dumps(ROLES),
        "http_rate_per_second": "0",  # a fast machine asks faster than anybody may
        **more,
    }


@pytest.fixture
def known(serve: Callable[..., Served], provider: IdentityProvider) -> Served:
    """A Relevo that this provider knows."""
    return serve(**settings_for(provider))


class Visitor(Person):
    """Somebody at the dashboard who has no token."""

    def __init__(self, served: Served, provider: IdentityProvider) -> None:
        super().__init__(served, None)
        self.provider = provider
        self.state = ""

    def set_out(self, **asked: str) -> dict[str, str]:
        """Begin a login; return what the provider is asked."""
        there = self.get("/login/oidc", params=asked)
        assert there.status_code == 303, there.text
        address = urlsplit(there.headers["location"])
        assert f"{address.scheme}://{address.netloc}{address.path}" == f"{self.provider.url}/authorize"
        given = {name: values[0] for name, values in parse_qs(address.query).items()}
        self.provider.challenge, self.provider.nonce, self.state = (
            given["code_challenge"],
            given["nonce"],
            given["state"],
        )
        return given

    def come_back(self, **given: str) -> Any:
        """Come back with a code."""
        return self.get(PLACE, params={"code": "c", "state": self.state, **given})

    def sign_in(self, groups: list[str] | None = None, **asked: str) -> Any:
        """Log in at the provider as a member of groups."""
        if groups is not None:
            self.provider.claims["groups"] = groups
        self.set_out(**asked)
        return self.come_back()


def reasons(served: Served) -> list[str]:
    """Return why logins were refused, as the audit log has it."""
    return [row["error_message"] for row in audit.latest(served.app.database, action="refused_login")]


def test_the_request_is_bound_to_this_login(known: Served, provider: IdentityProvider) -> None:
    """The provider is asked for a code with PKCE, state and nonce, all new each time, and for openid."""
    assert "Sign in with single sign-on" in Visitor(known, provider).get("/login").text
    one, two = (Visitor(known, provider).set_out() for _ in range(2))
    assert (one["response_type"], one["client_id"], one["code_challenge_method"]) == ("code", CLIENT, "S256")
    assert one["redirect_uri"] == f"http://127.0.0.1{PLACE}"
    assert one["scope"].split() == ["openid", "profile", "email"]
    assert {one[each] for each in ("state", "nonce", "code_challenge")}.isdisjoint(two.values())
    assert "prompt" not in one


@pytest.mark.parametrize(
    ("groups", "role"),
    [(["ops"], "operator"), (["team"], "viewer"), (["support"], "observer"), (["support", "ops", "else"], "operator")],
)
def test_a_group_is_a_role(known: Served, provider: IdentityProvider, groups: list[str], role: str) -> None:
    """Whoever is in a group gets its role, of several the highest; pages and the audit log name the person."""
    visitor = Visitor(known, provider)
    answer = visitor.sign_in(groups, after="/dashboard/runs")
    assert answer.status_code == 200
    assert 'content="0; url=/dashboard/runs"' in answer.text
    assert all(word in answer.headers["set-cookie"] for word in ("relevo_session=", "HttpOnly", "SameSite=strict"))
    page = visitor.get("/dashboard")
    assert page.status_code == 200
    assert f"Ana Díaz (ana-1) ({role})" in page.text
    assert (visitor.get("/dashboard/compose").status_code == 403) == (role == "observer")
    [entry] = audit.latest(known.app.database, action="login")
    assert entry["actor"].startswith("Ana Díaz (ana-1) (")
    [session] = [row for row in visitor_sessions(known) if row["role"] == role]
    assert session["name"] == "Ana Díaz (ana-1)"


def visitor_sessions(served: Served) -> list[dict[str, Any]]:
    """Return all sessions."""
    from relevo.access import sessions  # noqa: PLC0415

    return sessions.list_all(served.app.database)


BAD: dict[str, dict[str, Any]] = {
    "another nonce": {"claims": {"nonce": "another"}},
    "no nonce": {"claims": {"nonce": None}},
    "no signature": {"header": {"alg": "none"}},
    "signed with the client's secret": {"header": {"alg": "HS256", "kid": "one"}, "signs_with": symmetric_key()},
    "another's key": {"signs_with": another_key()},
    "an unknown key": {"header": {"alg": "RS256", "kid": "three"}},
    "expired": {"claims": {"exp": int(time.time()) - 3_600}},
    "of tomorrow": {"claims": {"iat": int(time.time()) + 86_400, "nbf": int(time.time()) + 86_400}},
    "no expiry": {"claims": {"exp": None}},
    "for another client": {"claims": {"aud": "another"}},
    "for another client, too": {"claims": {"aud": [CLIENT, "another"], "azp": "another"}},
    "no audience": {"claims": {"aud": None}},
    "of another provider": {"claims": {"iss": "https://login.example"}},
    "nobody": {"claims": {"sub": None}},
    "a sub without end": {"claims": {"sub": "x" * 300}},
    "a sub that is no text": {"claims": {"sub": 7}},
    "refused code": {"refuses": "invalid_grant"},
    "about another person": {"claims": {"groups": None}, "about": {"sub": "bea-1", "groups": ["ops"]}},
}


@pytest.mark.parametrize("what", BAD)
def test_an_answer_that_is_not_good_lets_nobody_in(known: Served, provider: IdentityProvider, what: str) -> None:
    """Each way in which an ID token can be wrong is refused, recorded, and told without the reason."""
    for name, value in BAD[what].items():
        setattr(provider, name, value)
    visitor = Visitor(known, provider)
    answer = visitor.sign_in()
    assert answer.status_code == 401, what
    assert "did not log you in" in answer.text
    assert "relevo_session" not in visitor.cookies
    assert visitor_sessions(known) == []
    [why] = reasons(known)
    assert why.startswith(("The ID token", "The provider"))


def test_the_clock_of_the_provider_may_be_a_little_off(known: Served, provider: IdentityProvider) -> None:
    """A token that ended half a minute ago is taken, and one that begins in half a minute; a minute more is too much."""
    now = int(time.time())
    for claims, status in (({"exp": now - 30}, 200), ({"iat": now + 30}, 200), ({"exp": now - 120}, 401)):
        provider.claims = claims
        assert Visitor(known, provider).sign_in().status_code == status, claims


def test_a_login_is_this_browsers_and_ends_once(known: Served, provider: IdentityProvider) -> None:
    """Without the browser's own state, with another, or a second time with the same, a code is worth nothing."""
    visitor, stranger = Visitor(known, provider), Visitor(known, provider)
    visitor.set_out()
    stranger.state = visitor.state
    assert stranger.come_back().status_code == 403
    assert visitor.come_back(state="another").status_code == 403
    visitor.set_out()
    kept = visitor.cookies["relevo_sign_on"]
    done = visitor.come_back()
    assert done.status_code == 200
    assert 'relevo_sign_on=""' in done.headers["set-cookie"]
    visitor.cookies = {"relevo_sign_on": kept}
    assert visitor.come_back().status_code == 401
    assert "relevo_session" not in visitor.cookies
    assert visitor.get(PLACE, params={"error": "access_denied", "state": "x"}).status_code == 403


def test_a_cookie_that_is_none_of_ours_is_refused(known: Served, provider: IdentityProvider) -> None:
    """Whatever stands in the cookie of a login, the answer is a page."""
    visitor = Visitor(known, provider)
    for written in ("x", "e30=", base64.urlsafe_b64encode(b'{"state": 1}').decode(), "W10=", "x" * 4_000):
        visitor.cookies = {"relevo_sign_on": written}
        assert visitor.get(PLACE, params={"code": "c", "state": "1"}).status_code == 403
    assert Attempt.read(Attempt.begin("/dashboard").written()) is not None


def test_a_code_comes_from_this_provider(known: Served, provider: IdentityProvider) -> None:
    """An answer that names another issuer is refused, and one without an issuer where the provider says it names it."""
    visitor = Visitor(known, provider)
    visitor.set_out()
    assert visitor.come_back(iss="https://login.example").status_code == 401
    visitor.set_out()
    assert visitor.come_back(iss=provider.url).status_code == 200


def test_a_provider_that_names_itself_has_to(serve: Callable[..., Served], provider: IdentityProvider) -> None:
    """Where the metadata say that answers name the issuer, one that does not is refused."""
    provider.metadata = {"authorization_response_iss_parameter_supported": True}
    served = serve(**settings_for(provider))
    assert Visitor(served, provider).sign_in().status_code == 401


def test_whoever_lost_the_group_loses_the_sessions(known: Served, provider: IdentityProvider) -> None:
    """A login without a group is refused, and ends the sessions that the person still has elsewhere."""
    home, work = Visitor(known, provider), Visitor(known, provider)
    assert home.sign_in().status_code == 200
    answer = work.sign_in(["else"])
    assert answer.status_code == 403
    assert "none of your groups may see this dashboard" in answer.text
    assert home.get("/dashboard").status_code == 401
    assert reasons(known)[0] == "Ana Díaz (ana-1) is in no group of OIDC_ROLES; 1 sessions ended."


def test_another_role_ends_the_sessions_of_the_former(known: Served, provider: IdentityProvider) -> None:
    """Who was an operator and is an observer now is one everywhere; equal groups leave other sessions alone."""
    home, work, third = (Visitor(known, provider) for _ in range(3))
    home.sign_in(["ops"])
    work.sign_in(["ops"])
    assert home.get("/dashboard").status_code == 200
    third.sign_in(["support"])
    assert [each.get("/dashboard").status_code for each in (home, work, third)] == [401, 401, 200]
    assert third.get("/dashboard/compose").status_code == 403


def test_a_person_is_the_sub_alone(known: Served, provider: IdentityProvider, conn: psycopg.Connection[Any]) -> None:
    """Another name or address is the same person; another sub with the same address, verified or not, is another."""
    mail = {"email": "ana@example.com", "email_verified": True}
    for sub, name in (("ana-1", "Ana"), ("ana-1", "Ana Soto"), ("eve-1", "Ana Soto")):
        provider.claims = {"sub": sub, "name": name, **mail}
        assert Visitor(known, provider).sign_in().status_code == 200
    rows = conn.execute("select subject, name from relevo.api_tokens where subject is not null order by 1").fetchall()
    assert rows == [("ana-1", "Ana Soto (ana-1)"), ("eve-1", "Ana Soto (eve-1)")]


def test_a_name_cannot_pose_as_another(known: Served, provider: IdentityProvider) -> None:
    """A name has its sub behind it, on one line: nobody is called as a login link, or as somebody else."""
    provider.claims = {"name": "login link\n\x1b[31m\u202e"}
    visitor = Visitor(known, provider)
    assert visitor.sign_in().status_code == 200
    assert [row["name"] for row in visitor_sessions(known)] == ["login link[31m (ana-1)"]


def test_groups_may_be_told_apart_and_deep(serve: Callable[..., Served], provider: IdentityProvider) -> None:
    """Groups may stand in an object of the ID token, or in what the provider tells of the person beside it."""
    served = serve(**settings_for(provider, oidc_groups_claim="realm_access.roles"))
    provider.claims = {"groups": None, "realm_access": {"roles": ["team"]}}
    assert Visitor(served, provider).sign_in().status_code == 200
    provider.claims = {"groups": None}
    provider.about = {"sub": "ana-1", "realm_access": {"roles": ["ops"]}}
    again = serve(**settings_for(provider, oidc_groups_claim="realm_access.roles"))
    assert Visitor(again, provider).sign_in().status_code == 200
    assert [row["role"] for row in visitor_sessions(again)] == ["operator"]


def test_a_session_cannot_be_planted(known: Served, provider: IdentityProvider) -> None:
    """A cookie that was there before the login is not taken over, and the session that it was ends."""
    first, planted = Visitor(known, provider), "p" * 43
    first.sign_in()
    former = first.cookies["relevo_session"]
    first.sign_in()
    assert first.cookies["relevo_session"] != former
    old = Visitor(known, provider)
    old.cookies = {"relevo_session": former}
    assert old.get("/dashboard").status_code == 401
    victim = Visitor(known, provider)
    victim.cookies = {"relevo_session": planted}
    victim.sign_in()
    assert victim.cookies["relevo_session"] != planted
    old.cookies = {"relevo_session": planted}
    assert old.get("/dashboard").status_code == 401


def test_no_other_site_logs_a_person_out(known: Served, provider: IdentityProvider) -> None:
    """A logout without the session's mark, or from another site, does nothing; with it the session is over."""
    visitor = Visitor(known, provider)
    visitor.sign_in()
    kept = dict(visitor.cookies)
    assert visitor.post("/logout").status_code == 403
    mark = api_tokens.form_mark(visitor.cookies["relevo_session"])
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    answer = visitor.client.call("POST", "/logout", data={"form": mark}, cookies=kept, headers=elsewhere)
    assert answer.status_code == 403
    assert visitor.get("/dashboard").status_code == 200
    assert visitor.send("/logout").status_code == 303
    visitor.cookies = kept
    assert visitor.get("/dashboard").status_code == 401


@pytest.mark.parametrize(
    "after", ["https://evil.example", "//evil.example", "/dashboard\\@evil", "/logout", "javascript:x"]
)
def test_a_login_leads_to_pages_of_ours_alone(known: Served, provider: IdentityProvider, after: str) -> None:
    """Wherever an address or a cookie wants to lead after the login, that is the overview."""
    visitor = Visitor(known, provider)
    assert 'content="0; url=/dashboard"' in visitor.sign_in(after=after).text
    visitor.set_out()
    begun = Attempt.read(visitor.cookies["relevo_sign_on"])
    assert begun is not None
    forged = Attempt(begun.state, begun.nonce, begun.verifier, after)
    visitor.cookies["relevo_sign_on"] = forged.written()
    assert 'content="0; url=/dashboard"' in visitor.come_back().text


def test_a_provider_that_is_away_leaves_tokens(serve: Callable[..., Served], provider: IdentityProvider) -> None:
    """While the provider is down the page says so and a token still logs in; the next login finds it again."""
    served = serve(**settings_for(provider))
    provider.metadata = {"issuer": "https://somebody.example"}
    visitor = Visitor(served, provider)
    answer = visitor.get("/login/oidc")
    assert answer.status_code == 503
    assert "The sign-on service cannot be reached now. A token still logs in." in answer.text
    person = Person(served)
    assert person.log_in().status_code == 303
    asked = len(provider.asked)
    assert visitor.get("/login/oidc").status_code == 503
    assert len(provider.asked) == asked
    provider.close()
    other = serve(**settings_for(provider))
    assert Visitor(other, provider).get("/login/oidc").status_code == 503


def test_a_provider_that_is_slow_is_waited_for_so_long(
    serve: Callable[..., Served], provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider that does not answer holds a login for its time, and nobody else."""
    monkeypatch.setattr(oidc, "_ANSWER_S", 0.3)
    served = serve(**settings_for(provider))
    provider.delay_s = 2.0
    began = time.monotonic()
    assert Visitor(served, provider).get("/login/oidc").status_code == 503
    assert time.monotonic() - began < 2.0
    assert served.client("viewer").get("/v1/ops/stats").status_code == 200


def test_what_the_provider_published_is_kept(known: Served, provider: IdentityProvider) -> None:
    """Metadata and keys are read once for many logins; new keys are read when a token has one, and not for each wrong one."""
    for _ in range(3):
        assert Visitor(known, provider).sign_in().status_code == 200
    assert provider.asked.count("/.well-known/openid-configuration") == 1
    assert provider.asked.count("/keys") == 1
    age = known.server.api.state.provider  # type: ignore[union-attr]
    provider.key, provider.header = elliptic_key(), {"alg": "ES256", "kid": "two"}
    assert Visitor(known, provider).sign_in().status_code == 401  # its keys were read a moment ago
    age._keys = oidc._Kept(age._keys.value, age._keys.at - 11)
    assert Visitor(known, provider).sign_in().status_code == 200
    assert provider.asked.count("/keys") == 2
    provider.header = {"alg": "ES256", "kid": "five"}
    for _ in range(3):
        assert Visitor(known, provider).sign_in().status_code == 401
    assert provider.asked.count("/keys") == 2


def test_the_secret_is_nowhere(
    known: Served, provider: IdentityProvider, capfd: pytest.CaptureFixture[str], conn: psycopg.Connection[Any]
) -> None:
    """The client's secret goes to the provider alone: no page, log line, setting shown, or row has it."""
    visitor = Visitor(known, provider)
    said = [visitor.get("/login").text, visitor.sign_in().text]
    provider.refuses = "invalid_client"
    said += [visitor.sign_in().text, repr(known.app.settings)]
    assert any(SECRET in base64.b64decode(each.split()[1]).decode() for each in provider.authorised if each)
    said += [str(row) for row in conn.execute("select a::text from relevo.audit_log a").fetchall()]
    out, err = capfd.readouterr()
    assert SECRET not in "".join([*said, out, err])
    assert visitor.cookies["relevo_session"] not in f"{out}{err}"


def test_a_revoked_person_stays_out(known: Served, provider: IdentityProvider, conn: psycopg.Connection[Any]) -> None:
    """Who was locked out here cannot sign in, whatever the groups say, until that is taken back."""
    visitor = Visitor(known, provider)
    visitor.sign_in()
    [(person,)] = conn.execute("select id from relevo.api_tokens where subject is not null").fetchall()
    api_tokens.revoke(known.app.database, person)
    assert visitor.get("/dashboard").status_code == 401
    assert visitor.sign_in().status_code == 403
    assert reasons(known)[0] == "The access of Ana Díaz (ana-1) was revoked here."
    assert sign_on.restore(known.app.database, person) == "Ana Díaz (ana-1)"
    assert visitor.sign_in().status_code == 200
    for wrong in (person, "0123456789ab"):
        with pytest.raises(NotFoundError, match="There is no person"):
            sign_on.restore(known.app.database, wrong)


def test_a_grave_action_asks_for_another_login(
    known: Served, provider: IdentityProvider, conn: psycopg.Connection[Any]
) -> None:
    """Later than a quarter of an hour the person logs in again at the provider, which has to have asked just now."""
    visitor = Visitor(known, provider)
    visitor.sign_in()
    conn.execute("update relevo.http_sessions set proved_at = now() - interval '16 minutes'")
    asked = visitor.send("/dashboard/actions/release?project=default", project="default")
    assert asked.status_code == 403
    assert "/login/oidc?again=1" in asked.text
    assert 'name="proof"' not in asked.text
    token = known.client("operator").token
    assert token
    assert visitor.send("/dashboard/actions/release", project="default", proof=token).status_code == 403
    given = visitor.set_out(again="1")
    assert (given["prompt"], given["max_age"]) == ("login", "0")
    provider.claims = {"auth_time": int(time.time()) - 3_600}
    assert visitor.come_back().status_code == 401
    visitor.set_out(again="1")
    provider.claims = {"auth_time": int(time.time())}
    assert visitor.come_back().status_code == 200
    done = visitor.send("/dashboard/actions/release", project="default")
    assert "again=1" not in done.text


def test_without_a_provider_there_is_no_button(served: Served) -> None:
    """A Relevo without OIDC_ISSUER has no button and no address to sign in with."""
    person = Person(served, None)
    assert "Sign in with" not in person.get("/login").text
    assert [person.get(path).status_code for path in ("/login/oidc", PLACE)] == [404, 404]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("oidc_issuer", "http://login.example", "OIDC_ISSUER must begin with https://"),
        ("oidc_issuer", "https://a:b@login.example", "OIDC_ISSUER must have no user"),
        ("oidc_redirect_url", "https://relevo.example/login", "OIDC_REDIRECT_URL must end with /login/oidc/callback"),
        ("oidc_roles", "ops=operator", "OIDC_ROLES must be a JSON object"),
        ("oidc_roles", '{"ops": "app"}', "OIDC_ROLES must have roles out of observer, viewer, operator"),
        ("oidc_roles", "", "OIDC_ROLES"),
    ],
)
def test_settings_that_do_not_do_are_told(
    make_settings: Callable[..., Any], provider: IdentityProvider, name: str, value: str, said: str
) -> None:
    """A setting that would be unsafe, or fits nothing, is refused by its name at the start."""
    with pytest.raises(ConfigError, match=said):
        make_settings(**settings_for(provider, **{name: value}))
