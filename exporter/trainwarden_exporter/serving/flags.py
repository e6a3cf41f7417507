"""The flags of a program that serves, in the form that Prometheus's own programs have them."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainwarden_exporter import logsetup
from trainwarden_exporter.serving.listening import parse_listen_address


def add_serving_flags(parser: argparse.ArgumentParser, *, listen_address: str) -> None:
    """Add those about listening and logging; `listen_address` is where it listens by default."""
    parser.add_argument(
        "--web.listen-address",
        dest="web_listen_address",
        default=listen_address,
        type=_listen_address,
        metavar="HOST:PORT",
        help="where to listen (default: %(default)s)",
    )
    parser.add_argument(
        "--web.config.file",
        dest="web_config_file",
        type=Path,
        metavar="FILE",
        help="TLS and users, in the format of the Prometheus exporter-toolkit",
    )
    parser.add_argument(
        "--log.level",
        dest="log_level",
        default="info",
        choices=logsetup.LEVELS,
        help="the least level that is logged (default: %(default)s)",
    )
    parser.add_argument(
        "--log.format",
        dest="log_format",
        default="logfmt",
        choices=logsetup.FORMATS,
        help="the form of a line of the log (default: %(default)s)",
    )


def _listen_address(text: str) -> str:
    try:
        parse_listen_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text
