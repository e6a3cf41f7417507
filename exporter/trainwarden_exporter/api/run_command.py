"""The command `run`: serves until terminated."""

from __future__ import annotations

import argparse
import asyncio

from pydantic import ValidationError

from trainwarden_exporter.api.server import build_app
from trainwarden_exporter.app import Exporter
from trainwarden_exporter.config import RemediatorConfig
from trainwarden_exporter.runtime import logging_setup
from trainwarden_exporter.runtime.command_parser import add_config_file
from trainwarden_exporter.webserver.flags import add_serving_flags, argument_type
from trainwarden_exporter.webserver.server import WebServer
from trainwarden_exporter.webserver.service import serve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_file(parser, "configuration file; without it, only the host is observed")
    parser.add_argument(
        "--remediator.url",
        dest="remediator_url",
        type=argument_type(_remediator),
        metavar="URL",
        help="remediator of this host, in place of `remediator` in the configuration file",
    )
    add_serving_flags(parser, listen_address="127.0.0.1:10977")


def run(options: argparse.Namespace) -> int:
    """Serves until a termination signal.

    Raises ConfigError or OSError when it cannot start.
    """
    logging_setup.configure(options.log_level, options.log_format)
    asyncio.run(_serve(options))
    return 0


async def _serve(options: argparse.Namespace) -> None:
    exporter = Exporter(options.config_file, remediator=options.remediator_url)
    server = WebServer(
        build_app(exporter),
        listen_address=options.web_listen_address,
        config_file=options.web_config_file,
        external_names=options.web_external_names,
    )
    exporter.reload_with(server)
    try:
        await serve(server, readiness=exporter.readiness, reload=exporter.reloader.reload)
    finally:
        exporter.close()


def _remediator(url: str) -> RemediatorConfig:
    try:
        return RemediatorConfig(url=url)
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"]) from None
