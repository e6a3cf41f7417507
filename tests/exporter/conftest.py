"""Certificates for tests that speak TLS, made once."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM text and as files."""

    cert: str
    key: str
    cert_file: Path
    key_file: Path

    @property
    def serial(self) -> int:
        return x509.load_pem_x509_certificate(self.cert.encode()).serial_number


class Authority:
    """A certificate authority that writes what it issues into a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(self.name, self.key.public_key(), (), ca=True, end=NOW + DAY)
        self.cert = certificate.public_bytes(serialization.Encoding.PEM).decode()
        self.cert_file = folder / f"{name}.pem"
        self.cert_file.write_text(self.cert)

    def issue(self, name: str, *sans: x509.GeneralName, end: dt.datetime = NOW + DAY) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        certificate = self._sign(subject, key.public_key(), sans, ca=False, end=end)
        pair = Pair(
            certificate.public_bytes(serialization.Encoding.PEM).decode(),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ).decode(),
            self.folder / f"{name}.crt",
            self.folder / f"{name}.key",
        )
        pair.cert_file.write_text(pair.cert)
        pair.key_file.write_text(pair.key)
        return pair

    def issue_server(self, name: str, *, end: dt.datetime = NOW + DAY) -> Pair:
        loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        return self.issue(name, x509.DNSName("localhost"), loopback, end=end)

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        sans: tuple[x509.GeneralName, ...],
        *,
        ca: bool,
        end: dt.datetime,
    ) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - 10 * DAY)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if sans:
            builder = builder.add_extension(x509.SubjectAlternativeName(sans), critical=False)
        return builder.sign(self.key, hashes.SHA256())


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="session")
def server_pair(authority: Authority) -> Pair:
    return authority.issue_server("server")


@pytest.fixture(scope="session")
def renewed_pair(authority: Authority) -> Pair:
    return authority.issue_server("renewed")


@pytest.fixture(scope="session")
def expired_pair(authority: Authority) -> Pair:
    return authority.issue_server("expired", end=NOW - DAY)


@pytest.fixture(scope="session")
def client_pair(authority: Authority) -> Pair:
    return authority.issue(
        "client",
        x509.DNSName("prometheus.example"),
        x509.IPAddress(ipaddress.ip_address("::1")),
        x509.RFC822Name("ops@example.org"),
        x509.UniformResourceIdentifier("spiffe://example.org/prometheus"),
    )
