"""Doctor asks each push service about each project's credentials, and sends nothing."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from relevo.app import push_services
from relevo.operators import doctor
from relevo.sandbox import Sandbox
from support import native as adapters


@pytest.fixture(scope="module")
def native() -> Iterator[Sandbox]:
    """A sandbox with all services."""
    with Sandbox(native=True, apns_token_interval_s=0) as made:
        yield made


def look(native: Sandbox, make_settings: Any, tmp_path: Path, *sending: str, **entries: Any) -> dict[str, str]:
    """Return what doctor finds wrong with the sandbox's credentials, with some entries changed: why, by place."""
    folder = native.projects_file.parent
    project = json.loads(native.projects_file.read_text())["default"]
    for name, changes in entries.items():
        project[name] |= changes
    file = tmp_path / "projects.json"
    file.touch(mode=0o600)
    for entry in project.values():
        for key in entry:
            if key.endswith("_file"):
                entry[key] = str(folder / entry[key])
    file.write_text(json.dumps({"default": project}))
    settings = make_settings(
        push_projects_file=str(file),
        push_ca_file=str(native.ca_file),
        fcm_base_url=native.fcm,
        apns_base_url=native.apns,
        apns_sandbox_base_url=native.apns_sandbox,
        push_request_timeout_ms=5_000,
    )
    return {
        place.removeprefix("PUSH_PROJECTS_FILE, default, "): why
        for place, why in push_services.credential_troubles(settings, sending)
    }


def test_good_credentials_are_fine(native: Sandbox, make_settings, tmp_path: Path) -> None:
    """The push services take them, and no phone hears of it."""
    native.clear_faults()
    assert look(native, make_settings, tmp_path) == {}
    assert native.phones() == {}


def test_each_trouble_is_named_with_its_place(native: Sandbox, make_settings, tmp_path: Path) -> None:
    """A file that is missing or open to others, and a key that is none, are told by project and push service."""
    native.clear_faults()
    found = look(native, make_settings, tmp_path, fcm={"service_account_file": "gone.json"})
    assert found == {"fcm": "its file gone.json cannot be read (FileNotFoundError)"}
    key = tmp_path / "open.p8"
    key.write_text("garbage")
    key.chmod(0o644)
    found = look(native, make_settings, tmp_path, apns={"key_file": str(key)})
    assert found["open.p8"] == "others than its owner may read it: chmod 600"
    assert found["apns"].startswith("its key is no private key in PEM")


def test_a_key_of_the_other_environment_is_told(native: Sandbox, make_settings, tmp_path: Path) -> None:
    """Each environment that phones are registered in is asked about; a key that fits one alone is named for the other."""
    native.clear_faults()
    key = native.add_apns_key("ONLYSANDBOX", "sandbox")
    found = look(
        native,
        make_settings,
        tmp_path,
        *("apns::default::production", "apns::default::sandbox", "fcm::default::ios"),
        apns={"key_file": str(key), "key_id": "ONLYSANDBOX"},
    )
    assert found == {"apns, production": "Apple refuses it: BadEnvironmentKeyIdInToken"}


def test_a_refused_account_is_told(native: Sandbox, make_settings, tmp_path: Path) -> None:
    """What Google says of the account is repeated, and a right that is missing is told apart from it."""
    native.clear_faults()
    native.add_fault("invalid_grant", service="fcm", on="token", times=1)
    assert "Google refuses its account: " in look(native, make_settings, tmp_path)["fcm"]
    native.add_fault("PERMISSION_DENIED", service="fcm", times=1)
    assert look(native, make_settings, tmp_path)["fcm"].startswith("FCM refuses it: PERMISSION_DENIED")


@pytest.mark.parametrize("late_s", [-3_600, 0, 3_600])
def test_a_clock_that_is_wrong_is_told(native: Sandbox, late_s: int) -> None:
    """Before Google or Apple refuse a token for it, or when they do: by how much this machine's clock differs."""
    native.clear_faults()
    clock = {"clock": lambda: time.time() + late_s}
    with adapters.fcm(native, **clock) as fcm, adapters.apns(native, **clock) as apns:
        for said in (fcm.trouble(adapters.ANDROID), apns.trouble(adapters.PRODUCTION)):
            told = re.fullmatch(r"this machine's clock differs from its own by (\d+) seconds", said)
            assert (told and round(int(told[1]), -2)) == (3_600 if late_s else None), said


def test_doctor_tells_of_them(relay, tmp_path: Path) -> None:
    """Doctor's finding names the entry and the next step."""
    worker = relay()
    file = tmp_path / "projects.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps({"shop": {"fcm": {"service_account": {"type": "x"}}}}))
    settings = worker.app.settings.model_copy(update={"push_projects_file": file})
    troubles = partial(push_services.credential_troubles, settings)
    around = doctor.look_around(worker.app.database, worker.app.settings, credential_troubles=troubles)
    [found] = [each for each in around if each.kind == "credential_refused"]
    assert "PUSH_PROJECTS_FILE, shop, fcm: its service account has no client_email" in found.what
