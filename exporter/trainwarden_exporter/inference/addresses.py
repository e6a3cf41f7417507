"""Addresses of servers: which are usable, and which are of this host.

Of the standard library alone, because `trainwarden run` checks an address too.
"""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress
from urllib.parse import urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}
_MAX_LENGTH = 500


def check_url(value: str) -> str:
    """Returns the URL without a slash at its end. Raises ValueError if it is not usable."""
    if len(value) > _MAX_LENGTH:
        raise ValueError(f"longer than {_MAX_LENGTH} characters")
    parts = urlsplit(value)
    try:
        port = parts.port
    except ValueError as error:
        raise ValueError(f"not a URL: {error}") from None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or port == 0:
        raise ValueError("not a URL: write http://host:port or https://host:port")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "no user and password allowed, because URLs are displayed; use api_key_file"
        )
    if parts.fragment:
        raise ValueError("no fragment allowed")
    return value.rstrip("/") if not parts.query else value


def check_ready_address(value: str) -> None:
    """Raises ValueError if the exporter cannot ask a server of this host at the URL."""
    check_url(value)
    if any(one.isspace() for one in value):
        raise ValueError("has a space")
    if not is_local_address(urlsplit(value).hostname or ""):
        raise ValueError("not an address of this host, such as http://127.0.0.1:8000/health")


def is_local_address(host: str) -> bool:
    """Whether `host` is a loopback address, `localhost` or an address of this host."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    if address.is_loopback:
        return True
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with suppress(OSError), socket.socket(family) as one:
        one.bind((host, 0))
        return True
    return False
