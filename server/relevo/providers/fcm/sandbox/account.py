"""The service account that the sandbox gives out."""

from __future__ import annotations

import json
import secrets
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from relevo.sandbox.services.certificates import private_pem, write_private

PROJECT_ID = "relevo-sandbox"
CLIENT_EMAIL = f"sender@{PROJECT_ID}.iam.gserviceaccount.com"
RSA_BITS = 2_048


def write_account(file: Path, token_uri: str) -> tuple[rsa.RSAPublicKey, str]:
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
