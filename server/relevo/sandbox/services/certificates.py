"""A certificate authority of the sandbox's own, and the certificate its servers show."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from relevo.core.addresses import parsed

_VALID = timedelta(days=365)
_LEAST_LEFT = timedelta(days=30)
_LOCAL = ("localhost", "127.0.0.1", "::1")


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)


def private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    """Return a private key as PKCS #8, in PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def make_authority(folder: Path) -> tuple[Path, x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the folder's certificate authority, a new one if there is none or it ends soon: file, certificate, key."""
    file, key_file = folder / "ca.pem", folder / "ca-key.pem"
    if file.exists() and key_file.exists():
        found = x509.load_pem_x509_certificate(file.read_bytes())
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        if found.not_valid_after_utc - datetime.now(UTC) > _LEAST_LEFT and isinstance(key, ec.EllipticCurvePrivateKey):
            return file, found, key
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Relevo sandbox CA")])
    usage = _key_usage(signs_certificates=True)
    made = (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    write_private(key_file, private_pem(key))
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return file, made, key


def make_certificate(folder: Path, host: str) -> tuple[Path, Path]:
    """Make a new certificate for this machine's names; return the authority's file, and that of key and certificate."""
    ca_file, authority, ca_key = make_authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    names = dict.fromkeys([*_LOCAL, host, socket.gethostname()])
    alternatives = [
        x509.IPAddress(address) if (address := parsed(name)) else x509.DNSName(name)
        for name in names
        if name and name.isascii()
    ]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    issuer_key = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    made = (
        _builder(subject, authority.subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_key), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pair = folder / "server.pem"
    write_private(pair, private_pem(key) + made.public_bytes(serialization.Encoding.PEM))
    return ca_file, pair


def server_context(pair: Path, protocols: list[str]) -> ssl.SSLContext:
    """Return what a server needs to speak TLS, offering these protocols."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(pair)
    context.set_alpn_protocols(protocols)
    return context


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
