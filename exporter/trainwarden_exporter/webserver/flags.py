"""Command-line flags of a server, in the style of Prometheus."""

from __future__ import annotations

import argparse
from pathlib import Path
from urllib.parse import urlsplit

from trainwarden_exporter.runtime import logging_setup
from trainwarden_exporter.webserver.sockets import parse_listen_address


def add_serving_flags(parser: argparse.ArgumentParser, *, listen_address: str) -> None:
    """Adds the flags for listening and logging; `listen_address` is the default."""
    parser.add_argument(
        "--web.listen-address",
        dest="web_listen_address",
        default=listen_address,
        type=_listen_address,
        metavar="HOST:PORT",
        help="address to listen on (default: %(default)s)",
    )
    parser.add_argument(
        "--web.config.file",
        dest="web_config_file",
        type=Path,
        metavar="FILE",
        help="TLS and authentication settings, in the format of the Prometheus exporter-toolkit",
    )
    parser.add_argument(
        "--web.external-url",
        dest="web_external_names",
        action="append",
        default=[],
        type=_host_of_url,
        metavar="URL",
        help="URL by which a reverse proxy on this host makes the program reachable; may be"
        " repeated. Without it, requests to a loopback address must name a loopback host",
    )
    parser.add_argument(
        "--log.level",
        dest="log_level",
        default="info",
        choices=logging_setup.LEVELS,
        help="minimum level of log messages (default: %(default)s)",
    )
    parser.add_argument(
        "--log.format",
        dest="log_format",
        default="logfmt",
        choices=logging_setup.FORMATS,
        help="format of log messages (default: %(default)s)",
    )


def _host_of_url(text: str) -> str:
    try:
        host = urlsplit(text).hostname
    except ValueError:
        host = None
    if not host:
        raise argparse.ArgumentTypeError(f"not a URL: {text!r}: write https://host/")
    return host.removesuffix(".")


def _listen_address(text: str) -> str:
    try:
        parse_listen_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text
