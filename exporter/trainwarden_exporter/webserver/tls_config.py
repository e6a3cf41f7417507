"""The section `tls_server_config` of a web config file, with the contents of its files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationInfo

from trainwarden_exporter.config_file.loader import LocatedError, Section
from trainwarden_exporter.config_file.types import LocalPath

Stamp = tuple[int, int, int, int] | None
"""Device, inode, size and modification time (ns) of a file; None if it is not readable."""

CIPHERS: Mapping[str, str | None] = {
    "TLS_AES_128_GCM_SHA256": None,
    "TLS_AES_256_GCM_SHA384": None,
    "TLS_CHACHA20_POLY1305_SHA256": None,
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
"""OpenSSL's names by Go's (crypto/tls.CipherSuites); None for TLS 1.3, whose suites are fixed."""

CURVES: Mapping[str, str] = {
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
    "X25519": "X25519",
}
"""OpenSSL's names by Go's (crypto/tls.CurveID)."""

_UNVERIFIED_POLICIES = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
_PATH: TypeAdapter[Path] = TypeAdapter(LocalPath)


@dataclass(frozen=True, slots=True)
class FileContent:
    """The content of a file. Two are equal if their bytes are, whatever their paths."""

    path: Path = field(compare=False)
    stamp: Stamp = field(compare=False)
    content: bytes = field(repr=False)


def read_stamp(path: Path) -> Stamp:
    """Returns the current stamp of `path`; follows links."""
    try:
        return _stamp(path.stat())
    except OSError:
        return None


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _read(value: object, info: ValidationInfo) -> object:
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ValueError("not a path")  # noqa: TRY004 - pydantic reports ValueError alone
    path = _PATH.validate_python(value, context=info.context)
    try:
        with path.open("rb") as file:
            # The stamp first, so that the next check sees a change during the read.
            return FileContent(path, _stamp(os.fstat(file.fileno())), file.read())
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from error


def _one_of(table: Mapping[str, object], what: str) -> AfterValidator:
    def check(name: str) -> str:
        if name not in table:
            raise ValueError(f"unknown {what}: one of {', '.join(table)}")
        return name

    return AfterValidator(check)


def _check_version(value: object) -> object:
    if value in ("TLS10", "TLS11"):
        raise ValueError(f"{value} is not supported by OpenSSL: write TLS12 or TLS13")
    return value


def _check_policy(value: object) -> object:
    if value in _UNVERIFIED_POLICIES:
        raise ValueError(
            f"{value} is not supported: Python's ssl accepts no client certificate without "
            "verification; write RequireAndVerifyClientCert or VerifyClientCertIfGiven"
        )
    return value or "NoClientCert"


def _none_if_blank(value: object) -> object:
    return None if value == "" else value


File = Annotated[FileContent | None, BeforeValidator(_read)]
Text = Annotated[str | None, BeforeValidator(_none_if_blank)]
Version = Annotated[Literal["TLS12", "TLS13"], BeforeValidator(_check_version)]
Policy = Annotated[
    Literal["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"],
    BeforeValidator(_check_policy),
]


class TLSServerConfig(Section):
    """The section `tls_server_config`; the validation reads the files that it names.

    An empty section means no TLS. It is stricter than the toolkit's. These are errors: settings
    without a certificate, a value both inline and as a file, a client CA or allowed names without a
    policy that uses them, and required client certificates without a CA (the toolkit would accept a
    certificate of any public CA). Python's ssl supports neither unverified client certificates nor
    a choice of several curves, so these are errors too.
    """

    cert: Text = None
    """Certificate chain of the server, PEM, inline."""
    cert_file: File = None
    """The same as a file."""
    key: Text = Field(default=None, repr=False)
    """Private key, PEM, not encrypted, inline."""
    key_file: File = None
    """The same as a file."""
    client_auth_type: Policy = "NoClientCert"
    """Whether clients show a certificate. Where it is required, a client without one can still
    connect, so that health checks get their answer; every other path refuses it."""
    client_ca: Text = None
    """CA certificates that client certificates are verified by, PEM, inline."""
    client_ca_file: File = None
    """The same as a file."""
    client_allowed_sans: tuple[str, ...] = ()
    """Subject alternate names (DNS, IP, e-mail, URI); a client certificate must bear one."""
    min_version: Version = "TLS12"
    max_version: Version = "TLS13"
    cipher_suites: tuple[Annotated[str, _one_of(CIPHERS, "cipher suite")], ...] = ()
    """Go's names of suites for TLS 1.2; those of TLS 1.3 are accepted and, as in Go, all on."""
    prefer_server_cipher_suites: bool = True
    """Whether the order of `cipher_suites` goes before the client's."""
    curve_preferences: tuple[Annotated[str, _one_of(CURVES, "curve")], ...] = ()
    """The one curve to offer; the default is OpenSSL's list."""

    @property
    def enabled(self) -> bool:
        """Whether TLS is configured."""
        return bool(self.model_fields_set)

    @property
    def demands_certificate(self) -> bool:
        return self.client_auth_type == "RequireAndVerifyClientCert"

    def pem(self, name: Literal["cert", "key", "client_ca"]) -> tuple[str, str] | None:
        """Returns the PEM text of `name` and its key in the section; None if it is not set."""
        inline: str | None = getattr(self, name)
        file: FileContent | None = getattr(self, f"{name}_file")
        if inline is not None and file is not None:
            raise LocatedError(f"given twice: as {name} and as {name}_file", f"{name}_file")
        if inline is not None:
            return inline, name
        # Only comments around PEM blocks may have other characters than ASCII.
        return None if file is None else (file.content.decode("ascii", "ignore"), f"{name}_file")
