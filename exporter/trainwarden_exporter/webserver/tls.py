"""Server-side TLS contexts for the settings of a web config file."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from trainwarden_exporter.config_file.loader import LocatedError
from trainwarden_exporter.webserver.tls_config import CIPHERS, CURVES, TLSServerConfig

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}


def build_context(config: TLSServerConfig) -> ssl.SSLContext:
    """Returns a server-side context with the settings of `config`.

    Raises LocatedError with the invalid key of the section.
    """
    certificate, key = config.pem("cert"), config.pem("key")
    if certificate is None:
        raise LocatedError("missing: TLS needs cert or cert_file", "cert_file")
    if key is None:
        raise LocatedError("missing: TLS needs key or key_file", "key_file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    _set_versions_and_ciphers(context, config)
    _load_chain(context, certificate, key)
    _set_client_policy(context, config)
    return context


def certificate_warning(context: ssl.SSLContext, config: TLSServerConfig) -> str | None:
    """Why clients will refuse the certificate of `context` (it has expired, say), or None.

    Tries a handshake in memory. Raises LocatedError when none can succeed at all, as with cipher
    suites that do not fit the key.
    """
    certificate = config.pem("cert")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.set_ciphers("ALL")
    client.load_verify_locations(cadata=certificate[0] if certificate else None)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (client.wrap_bio(down, up), context.wrap_bio(up, down, server_side=True))
    try:
        for _ in range(4):
            for side in sides:
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except ssl.SSLError as error:
        where = ["cipher_suites"] if error.reason == "NO_SHARED_CIPHER" else []
        raise LocatedError(
            f"no handshake can succeed with these settings: {_error_text(error)}", *where
        ) from error
    return None


def _set_versions_and_ciphers(context: ssl.SSLContext, config: TLSServerConfig) -> None:
    context.minimum_version = _VERSIONS[config.min_version]
    context.maximum_version = _VERSIONS[config.max_version]
    if context.minimum_version > context.maximum_version:
        raise LocatedError("lower than min_version", "max_version")
    if config.prefer_server_cipher_suites:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    chosen = [name for suite in config.cipher_suites if (name := CIPHERS[suite]) is not None]
    if chosen:
        context.set_ciphers(":".join(chosen))
    elif config.cipher_suites:
        if config.max_version != "TLS13":
            raise LocatedError("no suite of TLS 1.2 among them", "cipher_suites")
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if len(config.curve_preferences) > 1:
        raise LocatedError(
            "several curves are not supported: Python's ssl sets one, or leaves OpenSSL's list",
            "curve_preferences",
        )
    for curve in config.curve_preferences:
        try:
            context.set_ecdh_curve(CURVES[curve])
        except (ssl.SSLError, ValueError) as error:  # 3.11.2 of Debian 12: no X25519
            raise LocatedError(
                f"Python's ssl cannot set {curve} here; leave it out", "curve_preferences"
            ) from error


def _set_client_policy(context: ssl.SSLContext, config: TLSServerConfig) -> None:
    authorities = config.pem("client_ca")
    if config.client_auth_type == "NoClientCert":
        if authorities is not None:
            raise LocatedError("client_auth_type requests no certificates", authorities[1])
        if config.client_allowed_sans:
            raise LocatedError("client_auth_type requests no certificates", "client_allowed_sans")
        return
    if authorities is None and config.demands_certificate:
        raise LocatedError(
            f"missing: {config.client_auth_type} needs client_ca or client_ca_file",
            "client_ca_file",
        )
    context.verify_mode = ssl.CERT_OPTIONAL
    # As in Go, every certificate listed is trusted, also a certificate that is no root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if authorities is not None:
        _load_certificates(context, authorities)
    else:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)


def _load_certificates(context: ssl.SSLContext, source: tuple[str, str]) -> None:
    text, where = source
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise LocatedError(f"no PEM certificate in it: {_error_text(error)}", where) from error


def _load_chain(
    context: ssl.SSLContext, certificate: tuple[str, str], key: tuple[str, str]
) -> None:
    _load_certificates(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate)
    if "ENCRYPTED" in key[0]:
        raise LocatedError(
            "the key is encrypted: only keys without a password are supported", key[1]
        )
    try:
        with _in_memory_file(certificate[0]) as chain_path, _in_memory_file(key[0]) as key_path:
            # With a password OpenSSL does not prompt for it on the terminal.
            context.load_cert_chain(chain_path, key_path, password="")
    except ssl.SSLError as error:
        reason = (
            "does not belong to the certificate"
            if error.reason == "KEY_VALUES_MISMATCH"
            else f"certificate and key cannot be used: {_error_text(error)}"
        )
        raise LocatedError(reason, key[1]) from error


@contextmanager
def _in_memory_file(text: str) -> Iterator[str]:
    """Provides `text` at a path in memory.

    Python's ssl loads a key only from a path. So an inline key is never written to a disk, and the
    key that is loaded is the key that was read.
    """
    with os.fdopen(os.memfd_create("pem"), "wb") as file:
        file.write(text.encode())
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def _error_text(error: ssl.SSLError | ValueError) -> str:
    reason = getattr(error, "reason", None)
    return reason.replace("_", " ").lower() if isinstance(reason, str) else str(error)


def subject_names(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Returns the DNS, IP, e-mail and URI names of a certificate of `SSLSocket.getpeercert`."""
    names: set[str] = set()
    for kind, name in certificate.get("subjectAltName", ()):
        if kind == "IP Address":
            # OpenSSL writes IPv6 in full, the configuration in short.
            names.add(str(ipaddress.ip_address(name.strip())))
        elif kind in {"DNS", "email", "URI"}:
            names.add(name)
    return frozenset(names)
