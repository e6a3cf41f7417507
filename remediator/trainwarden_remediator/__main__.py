"""The command `trainwarden-remediator`."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import aiohttp

from trainwarden_exporter.exceptions import TrainwardenError
from trainwarden_exporter.gpu.holders import describe_holder
from trainwarden_exporter.runtime import logging_setup
from trainwarden_exporter.runtime.closed_output import is_unread, quiet_on_closed_output
from trainwarden_exporter.runtime.formatting import format_duration, format_time, plural
from trainwarden_exporter.runtime.similar_names import similar
from trainwarden_exporter.webserver.runbooks import read_runbook, runbook_names
from trainwarden_exporter.webserver.server import WebServer, parse_listen_address
from trainwarden_exporter.webserver.service import serve
from trainwarden_remediator.actions.gpu_cleanup import GpuCleanupAction
from trainwarden_remediator.api.bind_policy import check_exposure, check_web_config
from trainwarden_remediator.api.server import build_app
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.cli import NEWEST_EVENTS, PROGRAM, build_parser
from trainwarden_remediator.config.schema import Setup, load_setup
from trainwarden_remediator.config.targets import GpuCleanup
from trainwarden_remediator.config_check.check_command import check
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.holds import service
from trainwarden_remediator.holds.hold_file import Hold, read_holds
from trainwarden_remediator.journal import event_text
from trainwarden_remediator.journal.approvals import APPROVAL_SECONDS
from trainwarden_remediator.journal.database import journal_exists, open_database
from trainwarden_remediator.journal.rows import last_id, last_id_before, read_events
from trainwarden_remediator.journal.terminal import (
    LEAST_COLUMN,
    format_event,
    has_colours,
    terminal_width,
)
from trainwarden_remediator.notify.notifier import try_receivers
from trainwarden_remediator.notify.waiting import describe_waiting
from trainwarden_remediator.observation.model import ExporterState
from trainwarden_remediator.report.current_state import (
    CurrentState,
    describe_unread,
    mode_in_force,
    read_current_state,
    read_exporter_state,
    running_remediator,
)
from trainwarden_remediator.report.incident import ReportStyle, named_config
from trainwarden_remediator.report.json_report import incident_json, nights_json
from trainwarden_remediator.report.markdown import for_terminal
from trainwarden_remediator.report.nightly import (
    read_nights,
    read_present,
    report_incident,
    report_nights,
)
from trainwarden_remediator.runtime import oom_score
from trainwarden_remediator.runtime.clock import WallClock
from trainwarden_remediator.runtime.memory_reserve import THREADS, lock_memory, start_thread_pool
from trainwarden_remediator.telemetry.status_page import hold_json

TOKEN_PATHS = frozenset(
    {"/webhook", "/-/hold", "/-/resume", "/-/reload", "/report", "/report/{incident}", "/hold"}
)
"""Paths that authenticate requests by bearer token."""
FOLLOW_SECONDS = 0.5
"""Seconds between two reads of `journal --follow`."""


@quiet_on_closed_output
def main(arguments: Sequence[str] | None = None, *, program: str = PROGRAM) -> int:
    """Runs the command and returns its exit status: 0, 1 on failure, 2 on wrong usage.

    `program` is the name of the command in the help text.
    """
    given = build_parser(program).parse_args(arguments)
    try:
        return COMMANDS[given.command](given)
    except KeyboardInterrupt:
        return 0
    except (TrainwardenError, OSError, ValueError) as error:
        if is_unread(error):
            raise
        typed = "" if program == PROGRAM else f"{program} {given.command}: "
        print(*(f"{typed}{line}" for line in str(error).splitlines()), sep="\n", file=sys.stderr)
        return 1


def _run(given: argparse.Namespace) -> int:
    logging_setup.configure(given.log_level, given.log_format)
    with asyncio.Runner() as runner:
        try:
            threads = start_thread_pool()
        except (RuntimeError, MemoryError) as error:
            why = str(error) or "out of memory"
            raise TrainwardenError(f"cannot start {THREADS} threads: {why}") from error
        runner.get_loop().set_default_executor(threads)
        try:
            runner.run(_serve(given))
        finally:
            threads.shutdown()  # the runner would need one more thread for this
    return 0


def _build(given: argparse.Namespace) -> tuple[Remediator, WebServer]:
    """Returns the program and its web server; each reload repeats the checks of the start."""
    listen_address = given.web_listen_address
    remediator = Remediator(
        given.config_file,
        mode=given.mode,
        check=lambda config: check_exposure(
            config,
            given.config_file,
            listen_address=listen_address,
            web_config_file=given.web_config_file,
        ),
    )
    app = build_app(remediator)
    if given.token_renew:
        app.on_startup.append(lambda _: remediator.renew_token())
    server = WebServer(
        app,
        listen_address=listen_address,
        config_file=given.web_config_file,
        # These paths check their own token, and Alertmanager can send only one credential.
        own_credential_paths=lambda: TOKEN_PATHS if remediator.tokens else frozenset({"/webhook"}),
        external_names=given.web_external_names,
        form_paths=frozenset({"/hold"}),
        check=lambda web: check_web_config(
            web, remediator.setup.config, given.web_config_file, listen_address=listen_address
        ),
    )
    return remediator, server


async def _serve(given: argparse.Namespace) -> None:
    remediator, server = _build(given)
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


def _check(given: argparse.Namespace) -> int:
    port = parse_listen_address(given.web_listen_address)[1]
    check(given.file, rules=given.rules, alertmanager=given.alertmanager, port=port)
    return 0


def _journal(given: argparse.Namespace) -> int:
    path = load_setup(given.config_file).config.journal
    while not journal_exists(path):
        if not given.follow:
            raise JournalError(f"{path}: no journal; has the remediator run?")
        time.sleep(FOLLOW_SECONDS)
    width, colours = terminal_width(), has_colours()
    if not given.json and (not width or width >= event_text.LAST_COLUMN + LEAST_COLUMN):
        print(event_text.format_heading(), flush=True)
    # By default the newest ones; with a time, all of them since.
    limited = given.since is None and given.incident is None
    count = NEWEST_EVENTS if given.lines is None and limited else given.lines
    since = -math.inf if given.since is None else time.time() - given.since
    with open_database(path, mode="ro") as connection:
        last = last_id_before(connection, count, since)
        while True:
            # What is not shown is not read again, either.
            newest = last_id(connection)
            for event in read_events(connection, last, incident=given.incident):
                last = event.id
                shown = partial(format_event, width=width, colours=colours)
                print(event_text.as_json(event) if given.json else shown(event), flush=True)
            if not given.follow:
                waiting = () if given.json else describe_waiting(connection, time.time())
                print("".join(f"{line}\n" for line in waiting), end="")
                return 0
            last = max(last, newest)
            time.sleep(FOLLOW_SECONDS)


def _report(given: argparse.Namespace) -> int:
    setup = load_setup(given.config_file)
    config = setup.config
    now = time.time()
    style = ReportStyle(
        config_file=named_config(given.config_file),
        unattended_until=config.unattended_until,
        answered_after=config.answered_after,
        grafana_url=setup.exporter_config.grafana_url or "",
        full=given.full,
    )
    if given.incident is None:
        current, since = asyncio.run(_current_state(setup)), now - given.since
        if given.json:
            found = nights_json(read_nights(config.journal, since, now, current))
            print(json.dumps(found, indent=2))
            return 0
        report = report_nights(config.journal, since, style, now, current)
    else:
        exporter = asyncio.run(_exporter_state(setup))
        if given.json:
            found = incident_json(read_present(config.journal, given.incident, now, exporter))
            print(json.dumps(found, indent=2))
            return 0
        report = report_incident(config.journal, given.incident, style, now, exporter)
    print(for_terminal(report) if sys.stdout.isatty() else report, end="")
    return 0


async def _current_state(setup: Setup) -> CurrentState:
    async with aiohttp.ClientSession() as session:
        current = await read_current_state(setup, session, WallClock())
        mode = await mode_in_force(setup, session)
    return replace(current, situation=replace(current.situation, mode=mode))


async def _exporter_state(setup: Setup) -> ExporterState | None:
    async with aiohttp.ClientSession() as session:
        return await read_exporter_state(setup, session)


def _hold(given: argparse.Namespace) -> int:
    setup, now = load_setup(given.config_file), time.time()
    if given.list or given.json:
        if given.why or given.run or given.worker or given.duration is not None:
            raise ValueError("--list and --json show all holds and set none: leave out the rest")
        holds = read_holds(setup.config.hold_file, now)
        if given.json:
            print(json.dumps([hold_json(hold, now=now) for hold in holds], indent=2))
            return 0
        for hold in holds:
            print(f"{hold.scope or 'everything'} {hold.description}".strip())
        return 0
    why = service.normalize_reason(given.why)
    if not given.run and why in {run.name for run in setup.exporter_config.runs}:
        raise ValueError(f"{why} is a run: `hold --run {why}` holds it, and another reason all")
    wanted = Hold(since=now)
    if given.duration is not None:
        wanted = Hold.lasting(given.duration, WallClock())
    who = service.operator_name()
    wanted = replace(wanted, run=given.run, worker=given.worker, who=who, why=why)
    try:
        service.hold(setup, wanted, now)
    except JournalError as error:  # the hold is in force nevertheless
        print(f"not recorded in the journal: {error}", file=sys.stderr)
    scope = f" --run {given.run}" * bool(given.run) + f" --worker {given.worker}" * bool(
        given.worker
    )
    until, resume = wanted.until, f"`trainwarden resume{scope}`"
    lasts = f"until {resume}" if until is None else f"until {format_time(until)}, or {resume}"
    what = "no actions" if wanted.everything else f"no actions on {wanted.scope}"
    print(f"held: {what} {lasts} ({setup.config.hold_file})")
    return 0


def _resume(given: argparse.Namespace) -> int:
    setup, now = load_setup(given.config_file), time.time()
    scope = {"run": given.run, "worker": given.worker}
    why = service.normalize_reason(given.why)
    done = service.resume(setup, now, **scope, who=service.operator_name(), why=why)
    print(service.describe_resume(done))
    for left in read_holds(setup.config.hold_file, now):
        print(f"still held: {left.scope} {left.description}".strip())
    return 0


def _approve(given: argparse.Namespace) -> int:
    setup = load_setup(given.config_file)
    what = service.approve(setup, given.incident, time.time(), who=service.operator_name())
    lasts = format_duration(APPROVAL_SECONDS)
    print(f"approved once, for {lasts}: {what}; `trainwarden journal --follow` shows what is done")
    return 0


def _runbook(given: argparse.Namespace) -> int:
    if (text := read_runbook(given.alert)) is None:
        names = sorted(runbook_names())
        meant = similar(given.alert, names)
        found = [meant] if meant else [one for one in names if given.alert.lower() in one.lower()]
        hint = f"did you mean {' or '.join(found)}?" if found else f"known: {', '.join(names)}"
        raise ValueError(f"no runbook {given.alert}; {hint}")
    print(text, end="")
    return 0


def _notify_test(given: argparse.Namespace) -> int:
    setup = load_setup(given.config_file)
    notify = setup.config.notify
    chosen = [one for one in notify.receivers if given.receiver in (None, one.name)]
    if not chosen:
        which = "" if given.receiver is None else f" named {given.receiver}"
        raise ValueError(f"{given.config_file}: `notify` has no receiver{which}")
    failed = 0
    for name, problem in asyncio.run(try_receivers(notify, chosen)):
        print(f"{name}: {f'not sent: {problem}' if problem else 'sent; check that it arrived'}")
        failed += bool(problem)
    if unread := describe_unread(given.config_file, setup, asyncio.run(_running(setup))):
        print(f"warning: {unread}", file=sys.stderr)
    return min(failed, 1)


async def _running(setup: Setup) -> Mapping[str, object]:
    async with aiohttp.ClientSession() as session:
        return await running_remediator(setup, session)


def _clean_gpu(given: argparse.Namespace) -> int:
    """Lists GPU holders, and ends leftovers on request, regardless of mode, holds and budgets."""
    setup = load_setup(given.config_file)
    cleanup = setup.config.gpu_cleanup or GpuCleanup()
    action = GpuCleanupAction(cleanup, setup.exporter_config)
    spared, chosen = action.select()
    for holder in spared:
        print(f"spared    {describe_holder(holder, time.time())}")
        print(f"          {action.why_spared(holder)}")
    for holder in chosen:
        print(f"leftover  {describe_holder(holder, time.time())}")
        print("          it belongs to no worker or child of one, and is not protected")
    if not chosen:
        print("no leftover holds a GPU")
        return 0
    if given.dry_run or not given.end:
        print(f"{plural(len(chosen), 'leftover')}; --end ends what is still one then")
        return 0
    shown = [holder.process.identity for holder in chosen]
    facts = action.perform("", lambda *_, **__: None, intended=shown)
    killed = f", {len(facts['killed'])} of them by SIGKILL" if facts["killed"] else ""
    print(f"terminated {plural(len(facts['ended']), 'leftover')}{killed}; the GPU memory is free")
    return 0


COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "run": _run,
    "check": _check,
    "journal": _journal,
    "report": _report,
    "clean-gpu": _clean_gpu,
    "notify-test": _notify_test,
    "hold": _hold,
    "resume": _resume,
    "approve": _approve,
    "runbook": _runbook,
}

if __name__ == "__main__":
    sys.exit(main())
