"""Listen for alerts and act on them."""

from __future__ import annotations

import argparse
import asyncio

from trainwarden_exporter.exceptions import TrainwardenError
from trainwarden_exporter.runtime import logging_setup
from trainwarden_exporter.webserver.flags import add_serving_flags
from trainwarden_exporter.webserver.server import WebServer
from trainwarden_exporter.webserver.service import serve
from trainwarden_remediator.api.bind_policy import check_exposure, check_web_config
from trainwarden_remediator.api.server import build_app
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.commands.arguments import LISTEN_ADDRESS, add_config_file
from trainwarden_remediator.runtime import oom_score
from trainwarden_remediator.runtime.memory_reserve import THREADS, lock_memory, start_thread_pool

TOKEN_PATHS = frozenset(
    {"/webhook", "/-/hold", "/-/resume", "/-/reload", "/report", "/report/{incident}", "/hold"}
)
"""Paths that authenticate requests by bearer token."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.allow_abbrev = False
    add_config_file(parser)
    parser.add_argument(
        "--mode", choices=("observe", "act"), help="override `mode` of the configuration file"
    )
    parser.add_argument(
        "--token.renew",
        dest="token_renew",
        action="store_true",
        help="write a new token to `token_file` at each start, for an Alertmanager that reads it"
        " there: whatever had the port meanwhile may know the old one",
    )
    add_serving_flags(parser, listen_address=LISTEN_ADDRESS)


def run(options: argparse.Namespace) -> int:
    logging_setup.configure(options.log_level, options.log_format)
    with asyncio.Runner() as runner:
        try:
            threads = start_thread_pool()
        except (RuntimeError, MemoryError) as error:
            why = str(error) or "out of memory"
            raise TrainwardenError(f"cannot start {THREADS} threads: {why}") from error
        runner.get_loop().set_default_executor(threads)
        try:
            runner.run(_serve(options))
        finally:
            threads.shutdown()  # the runner would need one more thread for this
    return 0


def build(options: argparse.Namespace) -> tuple[Remediator, WebServer]:
    """Returns the program and its web server; each reload repeats the checks of the start."""
    listen_address = options.web_listen_address
    remediator = Remediator(
        options.config_file,
        mode=options.mode,
        check=lambda config: check_exposure(
            config,
            options.config_file,
            listen_address=listen_address,
            web_config_file=options.web_config_file,
        ),
    )
    app = build_app(remediator)
    if options.token_renew:
        app.on_startup.append(lambda _: remediator.renew_token())
    server = WebServer(
        app,
        listen_address=listen_address,
        config_file=options.web_config_file,
        # These paths check their own token, and Alertmanager can send only one credential.
        own_credential_paths=lambda: TOKEN_PATHS if remediator.tokens else frozenset({"/webhook"}),
        external_names=options.web_external_names,
        form_paths=frozenset({"/hold"}),
        check=lambda web: check_web_config(
            web, remediator.setup.config, options.web_config_file, listen_address=listen_address
        ),
    )
    return remediator, server


async def _serve(options: argparse.Namespace) -> None:
    remediator, server = build(options)
    remediator.attach_web_file(server)
    async with remediator:
        # Only after the journal is locked: a second instance exits with a single error line.
        lock_memory()
        oom_score.PROCESS_SCORE.lower()
        await serve(
            server,
            readiness=remediator.readiness,
            reload=remediator.reloader.reload,
            background={
                "control_loop": remediator.control_loop.run,
                "failsafe": remediator.failsafe.run,
                "alert_poller": remediator.alert_poller.run,
                "unhandled_alerts": remediator.unhandled_alerts.run,
                "notifier": remediator.notifier.run,
            },
            alive=remediator.is_alive,
        )
