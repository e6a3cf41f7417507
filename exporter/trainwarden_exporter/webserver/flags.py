"""Command line of a server, with flags in the style of Prometheus."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from trainwarden_exporter.runtime import logging_setup
from trainwarden_exporter.webserver.sockets import parse_listen_address

T = TypeVar("T")


def add_serving_flags(parser: argparse.ArgumentParser, *, listen_address: str) -> None:
    """Adds the flags for listening and logging; `listen_address` is the default."""
    parser.add_argument(
        "--web.listen-address",
        dest="web_listen_address",
        default=listen_address,
        type=argument_type(_listen_address),
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
        type=argument_type(_host_of_url),
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
        raise ValueError(f"not a URL: {text!r}: write https://host/")
    return host.removesuffix(".")


def _listen_address(text: str) -> str:
    parse_listen_address(text)
    return text


def argument_type(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Returns `parse` as the type of an argument: the text of its ValueError is the message."""

    def parsed(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parsed
