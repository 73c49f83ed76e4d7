"""PUSH_PROJECTS_FILE: what it may say, what is refused, and what stays in force when it breaks."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from relevo.app import push_services
from relevo.core.errors import ConfigError
from relevo.core.known_services import NATIVE
from relevo.core.sending_project import SendingProject
from relevo.delivery.projects.provider_rules import ProviderRules
from relevo.providers import secret_file
from relevo.providers.apns.entry import ApnsEntry
from relevo.providers.expo.entry import ExpoEntry
from relevo.providers.fcm.entry import FcmEntry
from relevo.providers.push_projects import PushProject, PushProjects, Unusable
from support.load_settings import load

APNS = {"key_file": "key.p8", "key_id": "ABC", "team_id": "TEAM", "topic": "com.example.app"}


@pytest.fixture
def file(tmp_path: Path, monkeypatch) -> Path:
    """An empty file of projects that is looked at each time, beside a key."""
    monkeypatch.setattr(secret_file, "LOOK_EVERY_S", 0)
    made = tmp_path / "projects.json"
    made.touch(mode=0o600)
    made.write_text("{}")
    (tmp_path / "key.p8").write_text("the key")
    return made


def test_each_project_has_its_own_credentials(file: Path) -> None:
    """Secrets are read from where the file says, relative to it; "*" stands for every project it does not name."""
    account = {"type": "service_account"}
    file.write_text(
        json.dumps(
            {
                "shop": {"apns": APNS, "fcm": {"service_account": account, "connections": 2}},
                "*": {"expo": {"access_token": "for-all"}},
            }
        )
    )
    projects = PushProjects(file)
    found = projects.find(ApnsEntry, "shop")
    assert isinstance(found, PushProject)
    assert (found.secret, found.entry.topic) == ("the key", "com.example.app")
    assert "the key" not in repr(found)
    fcm = projects.find(FcmEntry, "shop")
    assert isinstance(fcm, PushProject)
    assert json.loads(fcm.secret) == account
    assert projects.overrides(SendingProject("fcm", "shop", "")) == {"connections": 2}
    assert projects.find(FcmEntry, "other") == Unusable(
        "NoCredential", "PUSH_PROJECTS_FILE has no fcm for project other"
    )
    other = projects.find(ExpoEntry, "anything")
    assert isinstance(other, PushProject)
    assert other.secret == "for-all"


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("[", "it is no JSON"),
        ("[]", "it must be a JSON object"),
        ('{"shop": 1}', "shop must be an object of push services: expo, fcm, apns, webpush"),
        ('{"shop": {"gcm": {}}}', "shop has an unknown push service 'gcm'"),
        ('{"shop": {"fcm": {"key": 1}}}', "shop, fcm, key is no key; known: .*service_account_file"),
        ('{"shop": {"fcm": {}}}', "shop, fcm: needs one of service_account_file, service_account"),
        ('{"shop": {"apns": {"key": "x", "key_id": "K", "team_id": "T"}}}', "shop, apns, topic: Field required"),
        ('{"shop": {"expo": {"connections": 0}}}', "shop, expo, connections: .*greater than or equal to 1"),
        ('{"shop": {"expo": {"access_token": "two words"}}}', "shop, expo, access_token"),
        ('{"shop": {"webpush": {"private_key": "x", "subject": "me"}}}', "shop, webpush, subject"),
        ('{"": {}}', "a project's name must have 1 to 200 characters"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(file: Path, make_settings, said: str, complaint: str) -> None:
    """The start ends with a sentence that names project, push service and key, without a value of the file."""
    file.write_text(said)
    with (
        pytest.raises(ConfigError, match=f"PUSH_PROJECTS_FILE cannot be used: {complaint}") as refused,
        push_services.push_providers(make_settings(push_projects_file=str(file))),
    ):
        pass
    assert "two words" not in str(refused.value)


def test_a_broken_file_keeps_the_last_good_one(file: Path) -> None:
    """After a change that cannot be used everything stays as it was, and the trouble is told; mended, it is gone."""
    file.write_text(json.dumps({"shop": {"expo": {"access_token": "first"}}}))
    projects = PushProjects(file)
    file.write_text("{broken")
    found = projects.find(ExpoEntry, "shop")
    assert isinstance(found, PushProject)
    assert found.secret == "first"
    ((place, why),) = projects.troubles()
    assert place == "PUSH_PROJECTS_FILE"
    assert why.startswith("it is no JSON")
    file.write_text(json.dumps({"shop": {"expo": {"access_token": "second"}}}))
    assert projects.all(ExpoEntry)["shop"].secret == "second"
    assert list(projects.troubles()) == []


def test_a_key_is_rotated_in_its_own_file(file: Path) -> None:
    """A named file that changed is read again; one that cannot be used is its project's trouble, and the last stays."""

    def check(project: PushProject[ApnsEntry]) -> None:
        if "garbage" in project.secret:
            raise ValueError("its key cannot be read")

    key = file.parent / "key.p8"
    file.write_text(json.dumps({"shop": {"apns": APNS}, "cafe": {"expo": {"access_token": "t"}}}))
    projects = PushProjects(file, checks={"apns": check})
    for said, used, troubles in (
        ("the second key", "the second key", []),
        ("garbage", "the second key", [("PUSH_PROJECTS_FILE, shop, apns", "its key cannot be read")]),
        ("the third", "the third", []),
    ):
        key.write_text(said)
        assert projects.all(ApnsEntry)["shop"].secret == used
        assert list(projects.troubles()) == troubles
    key.unlink()
    assert projects.all(ApnsEntry)["shop"].secret == "the third"
    assert [why for _, why in projects.troubles()] == ["its file key.p8 cannot be read (FileNotFoundError)"]


def test_a_key_of_64_kb_is_read_and_a_longer_one_is_not(file: Path) -> None:
    """What is no key at all is not held in memory, nor taken for a key by its beginning."""
    key = file.parent / "key.p8"
    file.write_text(json.dumps({"shop": {"apns": APNS}}))
    key.write_text("k" * 65_536)
    found = PushProjects(file).find(ApnsEntry, "shop")
    assert isinstance(found, PushProject)
    assert len(found.secret) == 65_536
    key.write_text("k" * 65_537)
    found = PushProjects(file).find(ApnsEntry, "shop")
    assert isinstance(found, Unusable)
    assert "its file key.p8 has more than 65536 characters" in found.message


def test_a_key_that_was_never_good_is_its_projects_trouble_alone(file: Path) -> None:
    """Without a usable key its project and push service have a sentence that says so, and the others are served."""
    (file.parent / "key.p8").unlink()
    file.write_text(json.dumps({"shop": {"apns": APNS, "expo": {"access_token": "t"}}}))
    projects = PushProjects(file)
    found = projects.find(ApnsEntry, "shop")
    assert isinstance(found, Unusable)
    assert found.code == "CredentialUnusable"
    assert "shop, apns: its file key.p8 cannot be read" in found.message
    assert isinstance(projects.find(ExpoEntry, "shop"), PushProject)


def test_a_missing_extra_is_looked_for_once(file: Path, make_settings, monkeypatch) -> None:
    """However many projects wait for a push service that is not installed, reading them takes one look for it."""
    looked: list[str] = []

    def find(module: str) -> None:
        looked.append(module)
        raise ModuleNotFoundError("No module named 'of_an_extra'", name="of_an_extra")

    monkeypatch.setattr(push_services, "import_module", find)
    file.write_text(json.dumps({f"shop-{n}": {"apns": APNS} for n in range(5)}))
    projects = push_services.push_projects(make_settings(push_projects_file=str(file)))
    assert len(list(projects.troubles())) == 5
    assert looked == ["relevo.providers.apns.credentials"]


def test_a_project_may_differ_from_its_push_service(file: Path, make_settings) -> None:
    """Rate, connections and chunk size of a project are its own, also after a change; the others keep the service's."""
    file.write_text(json.dumps({"shop": {"apns": {**APNS, "rate_per_second": 5, "connections": 2}}}))
    settings = make_settings(push_projects_file=str(file))
    projects = PushProjects(file)
    with push_services.push_providers(settings, projects=projects) as serving:
        rules = ProviderRules(settings, serving, projects.overrides)
        shop, cafe = rules.of("apns::shop::production"), rules.of("apns::cafe::production")
        assert (shop.rate_per_s, shop.connections, shop.chunk) == (5, 2, 100)
        assert (cafe.rate_per_s, cafe.connections) == (0, 6)
        file.write_text(json.dumps({"shop": {"apns": {**APNS, "chunk_size": 7}}}))
        assert (rules.of("apns::shop::sandbox").chunk, rules.of("apns::shop::sandbox").rate_per_s) == (7, 0)


@pytest.mark.parametrize("name", NATIVE)
def test_a_push_service_is_made_as_the_settings_say(file: Path, name: str) -> None:
    """Its requests end in time and go through the proxies; a phone's own host may be one that is named."""
    settings = load(
        PUSH_REQUEST_TIMEOUT_MS="1500",
        HTTPS_PROXY="http://proxy.example:3128",
        HTTP_ALLOW_PRIVATE="true",
        WEBPUSH_HOSTS=".push.example",
    )
    made = import_module(f"relevo.providers.{name}.provider").make(PushProjects(file), settings)
    assert (made.name, made._total_s, made._connect_s) == (name, 1.5, 1.5)
    client = made._client("https://service.example")
    assert client._proxies.for_url("https://service.example") == "http://proxy.example:3128"
    if name == "webpush":
        assert (made._hosts, made._allow_private) == ((".push.example",), True)
