"""The keys a sender needs, made by the sandbox itself: service account, APNs key, VAPID pair, and the projects file."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from relevo.sandbox.services.certificates import private_pem, write_private
from relevo.sandbox.services.json_web_tokens import encode

PROJECT_ID = "relevo-sandbox"
CLIENT_EMAIL = f"sender@{PROJECT_ID}.iam.gserviceaccount.com"
KEY_ID = "SANDBOXKEY"
TEAM_ID = "SANDBOXTEA"
TOPIC = "com.example.relevo"
SUBJECT = "mailto:sandbox@example.com"
MAX_KEYS = 100
RSA_BITS = 2_048
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@dataclass(frozen=True)
class ApnsKey:
    """A signing key of the team; one that is bound to an environment is refused in the other."""

    public: ec.EllipticCurvePublicKey
    environment: str | None = None


class Credentials:
    """What the sandbox gives out, and where it lies; what is not in the folder yet is made."""

    def __init__(self, folder: Path, token_uri: str) -> None:
        self._folder = folder
        self.service_account_file = folder / "service-account.json"
        self.service_account_key, self.service_account_key_id = _service_account(self.service_account_file, token_uri)
        self.vapid_key_file = folder / "vapid.pem"
        self.vapid_key = encode(point(_ec_key(self.vapid_key_file).public_key()))
        self.apns_keys: dict[str, ApnsKey] = {}
        self.apns_key_file = self.add_apns_key(KEY_ID, None)
        seed_file = folder / "browsers.seed"
        if not seed_file.exists():
            write_private(seed_file, secrets.token_bytes(32))
        self._seed = seed_file.read_bytes()

    def browser_key(self, name: str) -> tuple[ec.EllipticCurvePrivateKey, bytes]:
        """Return a browser's private key and its secret; the same name has the same ones, also tomorrow."""
        derived = HKDF(hashes.SHA256(), 64, None, name.encode("utf-8", "surrogateescape")).derive(self._seed)
        number = int.from_bytes(derived[:48], "big") % (_ORDER - 1) + 1
        return ec.derive_private_key(number, ec.SECP256R1()), derived[48:]

    def add_apns_key(self, key_id: str, environment: str | None) -> Path:
        """Make one more key of the team, for both environments or for one; return its file."""
        if len(self.apns_keys) >= MAX_KEYS:
            raise ValueError(f"There are {MAX_KEYS} keys already.")
        file = self._folder / f"AuthKey_{key_id}.p8"
        self.apns_keys[key_id] = ApnsKey(_ec_key(file).public_key(), environment)
        return file

    def write_projects(self, webpush_host: str) -> Path:
        """Write the file that a sender takes as PUSH_PROJECTS_FILE, for its project `default`."""
        file = self._folder / "projects.json"
        default: dict[str, Any] = {
            "fcm": {"service_account_file": self.service_account_file.name},
            "apns": {"key_file": self.apns_key_file.name, "key_id": KEY_ID, "team_id": TEAM_ID, "topic": TOPIC},
            "webpush": {"private_key_file": self.vapid_key_file.name, "subject": SUBJECT, "hosts": [webpush_host]},
        }
        write_private(file, json.dumps({"default": default}, indent=2).encode() + b"\n")
        return file


def point(key: ec.EllipticCurvePublicKey) -> bytes:
    """Return a public key as its uncompressed point of 65 bytes."""
    return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def _ec_key(file: Path) -> ec.EllipticCurvePrivateKey:
    if file.exists():
        found = serialization.load_pem_private_key(file.read_bytes(), None)
        if isinstance(found, ec.EllipticCurvePrivateKey):
            return found
    key = ec.generate_private_key(ec.SECP256R1())
    write_private(file, private_pem(key))
    return key


def _service_account(file: Path, token_uri: str) -> tuple[rsa.RSAPublicKey, str]:
    """Write the service account anew, for the address of the token endpoint may be another; its key stays."""
    if file.exists():
        known = json.loads(file.read_bytes())
        pem, key_id = known["private_key"], known["private_key_id"]
    else:
        pem, key_id = _rsa_pem(), secrets.token_hex(20)
    key = serialization.load_pem_private_key(pem.encode(), None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise TypeError(f"{file} holds no RSA key.")
    account = {
        "type": "service_account",
        "project_id": PROJECT_ID,
        "private_key_id": key_id,
        "private_key": pem,
        "client_email": CLIENT_EMAIL,
        "client_id": "100000000000000000001",
        "auth_uri": token_uri,
        "token_uri": token_uri,
        "universe_domain": "googleapis.com",
    }
    write_private(file, json.dumps(account, indent=2).encode() + b"\n")
    return key.public_key(), key_id


@cache
def _rsa_pem() -> str:
    """Make an RSA key, once a process: it takes a good part of a second."""
    return private_pem(rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)).decode()
