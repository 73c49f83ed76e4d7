"""The snippet for the app on the phone works, with modules that stand for Expo's."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from support.docs_pages import DOCS, blocks
from support.optional_parts import find_part

STUBS = {
    "expo-constants": "export default { expoConfig: { extra: { eas: { projectId: 'p' } } } };",
    "expo-notifications": """
        export const AndroidImportance = { DEFAULT: 3 };
        export const world = { status: 'undetermined', token: 'ExponentPushToken[1]', channels: 0, listener: null };
        export const getPermissionsAsync = async () => ({ status: world.status });
        export const requestPermissionsAsync = async () => ({ status: (world.status = 'granted') });
        export const setNotificationChannelAsync = async () => { world.channels += 1; };
        export const getExpoPushTokenAsync = async ({ projectId }) => ({ data: projectId && world.token });
        export const addPushTokenListener = (f) => { world.listener = f; return { remove() {} }; };
    """,
    "expo-secure-store": """
        const kept = new Map();
        export const getItemAsync = async (name) => kept.get(name) ?? null;
        export const setItemAsync = async (name, value) => { kept.set(name, value); };
    """,
    "react-native": "export const Platform = { OS: 'android' };",
}
DRIVER = """
import { world } from 'expo-notifications';
const calls = [];
globalThis.fetch = async (url, { method, headers, body }) => {
  calls.push([method, url, headers.Authorization, body ? JSON.parse(body) : null]);
  return { ok: true, status: 200, json: async () => ({ installationId: 'i-1' }) };
};
const push = await import('./push.mjs');
await push.register('s');
push.watch('s');
world.token = 'ExponentPushToken[2]';
await world.listener();
await push.logOut('s');
world.status = 'denied';
await push.register('s');
console.log(JSON.stringify({ calls, channels: world.channels }));
"""


@pytest.mark.needs("node")
def test_the_app_registers_rotates_and_logs_out(tmp_path: Path) -> None:
    """It asks for permission once, hands its token in, again when it changes, with the id it was told; and logs out."""
    [snippet] = [block.text for block in blocks(DOCS / "expo.md") if block.words == ("js", "run")]
    for name, text in STUBS.items():
        folder = tmp_path / "node_modules" / name
        folder.mkdir(parents=True)
        (folder / "package.json").write_text(json.dumps({"name": name, "type": "module", "main": "index.js"}))
        (folder / "index.js").write_text(text)
    (tmp_path / "push.mjs").write_text(snippet)
    (tmp_path / "driver.mjs").write_text(DRIVER)
    command = [find_part("node"), "driver.mjs"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["channels"] == 3
    sent = [
        (method, url, body and (body["token"], body["permission"], body["installationId"]))
        for method, url, _, body in told["calls"]
    ]
    phone = "https://shop.example/me/phone"
    assert sent == [
        ("PUT", phone, ("ExponentPushToken[1]", "granted", None)),
        ("PUT", phone, ("ExponentPushToken[2]", "granted", "i-1")),
        ("DELETE", f"{phone}/i-1", None),
        ("PUT", phone, (None, "denied", "i-1")),
    ]
