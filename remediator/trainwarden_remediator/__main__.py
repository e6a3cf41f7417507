"""The command `trainwarden-remediator`."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from trainwarden_exporter import __version__, logsetup
from trainwarden_exporter.exceptions import ConfigError, TrainwardenError
from trainwarden_exporter.gpu.checks import describe_holder
from trainwarden_exporter.serving.flags import add_serving_flags
from trainwarden_exporter.serving.service import serve
from trainwarden_exporter.serving.webserver import WebServer
from trainwarden_exporter.wording import plural
from trainwarden_remediator import journal, story
from trainwarden_remediator.actions.gpu_cleanup import GpuCleanupAction
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.config import GpuCleanup, Setup, load_setup
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.tokens import Tokens
from trainwarden_remediator.web import build_app

OPEN_PATHS = frozenset({"/-/healthy", "/-/ready", "/webhook"})
FOLLOW_SECONDS = 0.5
"""How often `journal --follow` looks for new lines."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 0, 1 when it failed, 2 for wrong usage."""
    given = _parser().parse_args(arguments)
    try:
        status: int = given.command(given)
    except BrokenPipeError:
        return 0
    except (TrainwardenError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return status


def _run(given: argparse.Namespace) -> int:
    logsetup.configure(given.log_level, given.log_format)
    asyncio.run(_serve(given))
    return 0


async def _serve(given: argparse.Namespace) -> None:
    remediator = Remediator(given.config_file, mode=given.mode)
    server = WebServer(
        build_app(remediator),
        listen_address=given.web_listen_address,
        config_file=given.web_config_file,
        # The webhook asks for its own token, and Alertmanager can send one credential only.
        open_paths=OPEN_PATHS,
    )
    remediator.reload_with(server)
    async with remediator:
        await serve(
            server,
            readiness=remediator.readiness,
            reload=remediator.reloader.reload,
            background={"engine": remediator.engine.run},
        )


def _check(given: argparse.Namespace) -> int:
    setup = load_setup(given.file)
    config = setup.config
    print(f"{given.file}: ok (mode {config.mode}, {plural(len(config.targets), 'target')})")
    for doubt in doubts(setup):
        print(f"{given.file}: warning: {doubt}", file=sys.stderr)
    return 0


def doubts(setup: Setup) -> list[str]:
    """What is allowed in a configuration and yet will hardly work on this box."""
    config = setup.config
    found = []
    if config.token_file is not None:
        try:
            Tokens(config.token_file).read()
        except ConfigError as error:
            found.append(f"no webhook would be accepted: {error}")
    for index, target in enumerate(config.targets):
        process = target.process
        if not process.cwd.is_dir():
            found.append(f"targets[{index}].process.cwd: no such folder: {process.cwd}")
        elif shutil.which(process.cwd / process.start[0]) is None and (
            "/" in process.start[0] or shutil.which(process.start[0]) is None
        ):
            found.append(f"targets[{index}].process.start: no such program: {process.start[0]}")
    return found + [
        f"worker {key.worker} of run {key.run} is no target: it is watched, and never restarted"
        for key in setup.selectors
        if config.target(key) is None
    ]


def _journal(given: argparse.Namespace) -> int:
    path = load_setup(given.config_file).config.journal
    while not journal.is_begun(path):
        if not given.follow:
            raise JournalError(f"{path}: there is no journal yet; has the remediator run?")
        time.sleep(FOLLOW_SECONDS)
    connection = journal.connect(path, readonly=True)
    if not given.json:
        print(story.heading(), flush=True)
    last = 0
    try:
        while True:
            for event in journal.read_events(connection, last):
                print(story.as_json(event) if given.json else story.line(event), flush=True)
                last = event.id
            if not given.follow:
                return 0
            time.sleep(FOLLOW_SECONDS)
    finally:
        connection.close()


def _hold(given: argparse.Namespace) -> int:
    path = load_setup(given.config_file).config.hold_file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    print(f"held: nothing is done until `resume` ({path})")
    return 0


def _resume(given: argparse.Namespace) -> int:
    path = load_setup(given.config_file).config.hold_file
    path.unlink(missing_ok=True)
    print("resumed")
    return 0


def _clean_gpu(given: argparse.Namespace) -> int:
    """Done by a person's own hand: no mode, hold or budget stands in its way."""
    setup = load_setup(given.config_file)
    cleanup = setup.config.gpu_cleanup or GpuCleanup()
    action = GpuCleanupAction(cleanup, setup.watched)
    spared, chosen = action.sort()
    for holder in spared:
        print(f"spared     {describe_holder(holder, time.time())}")
    for holder in chosen:
        print(f"to be ended  {describe_holder(holder, time.time())}")
    if not chosen:
        print("nothing to end")
    if given.dry_run or not chosen:
        return 0
    shown = [holder.process.identity for holder in chosen]
    facts = action.perform(0, lambda *_, **__: None, meant=shown)
    killed = f", {len(facts['killed'])} of them by SIGKILL" if facts["killed"] else ""
    print(f"ended {plural(len(facts['ended']), 'leftover')}{killed}; the memory is back")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trainwarden-remediator",
        description="Takes alerts from Alertmanager, decides, acts, verifies, and writes it down.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"trainwarden {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="listen for alerts and act on them", allow_abbrev=False)
    run.set_defaults(command=_run)
    _add_config_file(run)
    run.add_argument(
        "--mode", choices=("observe", "act"), help="takes the place of `mode` in the file"
    )
    add_serving_flags(run, listen_address="127.0.0.1:10978")

    check = commands.add_parser("check", help="say what is wrong with a configuration file")
    check.set_defaults(command=_check)
    check.add_argument("file", type=Path, metavar="FILE")

    tell = commands.add_parser("journal", help="tell what was heard, decided and done, and why")
    tell.set_defaults(command=_journal)
    _add_config_file(tell)
    tell.add_argument("--follow", action="store_true", help="go on as it happens")
    tell.add_argument("--json", action="store_true", help="one JSON object a line")

    clean = commands.add_parser(
        "clean-gpu", help="end what holds a GPU and belongs to no worker, now and by your own hand"
    )
    clean.set_defaults(command=_clean_gpu)
    _add_config_file(clean)
    clean.add_argument("--dry-run", action="store_true", help="only say what would be ended")

    for name, command, summary in (
        ("hold", _hold, "stop all actions until `resume`; survives restarts"),
        ("resume", _resume, "allow actions again"),
    ):
        switch = commands.add_parser(name, help=summary)
        switch.set_defaults(command=command)
        _add_config_file(switch)
    return parser


def _add_config_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config.file",
        dest="config_file",
        type=Path,
        default=Path("remediator.yml"),
        metavar="FILE",
        help="(default %(default)s)",
    )


if __name__ == "__main__":
    sys.exit(main())
