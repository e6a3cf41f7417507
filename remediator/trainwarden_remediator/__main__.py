"""The command `trainwarden-remediator`."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from trainwarden_exporter import logsetup
from trainwarden_exporter.exceptions import ConfigError, TrainwardenError
from trainwarden_exporter.gpu.checks import describe_holder
from trainwarden_exporter.serving.service import serve
from trainwarden_exporter.serving.webserver import WebServer, parse_listen_address
from trainwarden_exporter.wording import moment, plural
from trainwarden_remediator import holding, oomscore, story
from trainwarden_remediator.actions.gpu_cleanup import GpuCleanupAction
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.commandline import build_parser
from trainwarden_remediator.config import Setup, load_setup
from trainwarden_remediator.crosscheck.checking import cross_check
from trainwarden_remediator.crosscheck.plan import written
from trainwarden_remediator.crosscheck.rulefiles import find_rules, read_rules
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.exposure import check_exposure
from trainwarden_remediator.holdfile import Hold, read_holds
from trainwarden_remediator.journalfile import connect, is_begun
from trainwarden_remediator.notifying.posting import secret_problem
from trainwarden_remediator.notifying.trial import try_receivers
from trainwarden_remediator.records import read_events
from trainwarden_remediator.reporting.incident import Style
from trainwarden_remediator.reporting.telling import tell_incident, tell_nights
from trainwarden_remediator.reserve import stay_in_memory
from trainwarden_remediator.targets import GpuCleanup
from trainwarden_remediator.threads import THREADS, ready_threads
from trainwarden_remediator.tokens import Tokens
from trainwarden_remediator.web import build_app

TOKEN_PATHS = frozenset({"/webhook", "/-/hold", "/-/resume", "/report", "/report/{incident}"})
"""What is served to whoever has a token."""
FOLLOW_SECONDS = 0.5
"""How often `journal --follow` looks for new lines."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 0, 1 when it failed, 2 for wrong usage."""
    given = build_parser().parse_args(arguments)
    try:
        status = COMMANDS[given.command](given)
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
    with asyncio.Runner() as runner:
        try:
            threads = ready_threads()
        except (RuntimeError, MemoryError) as error:
            why = str(error) or "no memory"
            raise TrainwardenError(f"cannot begin: {THREADS} threads are needed: {why}") from error
        runner.get_loop().set_default_executor(threads)
        try:
            runner.run(_serve(given))
        finally:
            threads.shutdown()  # the runner would take one more to wait for them, and may get none
    return 0


async def _serve(given: argparse.Namespace) -> None:
    remediator = Remediator(given.config_file, mode=given.mode)
    check_exposure(
        remediator.setup.config,
        given.config_file,
        listen_address=given.web_listen_address,
        web_config_file=given.web_config_file,
    )
    server = WebServer(
        build_app(remediator),
        listen_address=given.web_listen_address,
        config_file=given.web_config_file,
        # They ask for their own token, and Alertmanager can send one credential only.
        own_credential_paths=TOKEN_PATHS if remediator.tokens else frozenset({"/webhook"}),
    )
    remediator.reload_with(server)
    async with remediator:
        # Not before it is known to be the only one: what is refused ends with one line.
        stay_in_memory()
        oomscore.OWN.lower()
        await serve(
            server,
            readiness=remediator.readiness,
            reload=remediator.reloader.reload,
            background={
                "engine": remediator.engine.run,
                "brake": remediator.brake.run,
                "pull": remediator.puller.run,
                "notifier": remediator.notifier.run,
            },
            alive=remediator.is_alive,
        )


def _check(given: argparse.Namespace) -> int:
    setup = load_setup(given.file)
    config = setup.config
    print(f"{given.file}: ok (mode {config.mode}, {plural(len(config.targets), 'target')})")
    for doubt in doubts(setup):
        print(f"{given.file}: warning: {doubt}", file=sys.stderr)
    rules = read_rules(find_rules(given.rules, given.file))
    found = cross_check(
        given.file,
        setup,
        rules,
        given.alertmanager,
        port=parse_listen_address(given.web_listen_address)[1],
    )
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    if found.steps:
        folders = sorted({str(rule.path.parent) for rule in rules})
        print(f"\nWhat the rules in {', '.join(folders)} lead to:\n\n{written(found.steps)}")
        if config.mode == "observe":
            print("\nThe mode is observe: all of it is only decided and written down.")
    if found.problems:
        raise ConfigError(*found.problems)
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
        found += [f"targets[{index}].{doubt}" for doubt in target.means.doubts()]
    for index, receiver in enumerate(config.notify.receivers):
        if problem := secret_problem(receiver):
            found.append(f"notify.receivers[{index}]: nothing can be sent: {problem}")
    return found + [
        f"worker {key.worker} of run {key.run} is no target: it is watched, and never restarted"
        for key in setup.selectors
        if config.target(key) is None
    ]


def _journal(given: argparse.Namespace) -> int:
    path = load_setup(given.config_file).config.journal
    while not is_begun(path):
        if not given.follow:
            raise JournalError(f"{path}: there is no journal yet; has the remediator run?")
        time.sleep(FOLLOW_SECONDS)
    connection = connect(path, mode="ro")
    if not given.json:
        print(story.heading(), flush=True)
    last = 0
    try:
        while True:
            for event in read_events(connection, last):
                print(story.as_json(event) if given.json else story.line(event), flush=True)
                last = event.id
            if not given.follow:
                return 0
            time.sleep(FOLLOW_SECONDS)
    finally:
        connection.close()


def _report(given: argparse.Namespace) -> int:
    config = load_setup(given.config_file).config
    now = time.time()
    style = Style(config_file=str(given.config_file), alertmanager_url=config.alertmanager.url)
    if given.incident is None:
        print(tell_nights(config.journal, now - given.since, style, now), end="")
        return 0
    told = tell_incident(config.journal, given.incident, style, now)
    if told is None:
        raise JournalError(f"{config.journal}: there is no incident {given.incident}")
    print(told, end="")
    return 0


def _hold(given: argparse.Namespace) -> int:
    setup, now = load_setup(given.config_file), time.time()
    until = None if given.duration is None else now + given.duration
    wanted = Hold(given.run, given.worker, until, now, _person(), holding.reason(given.why))
    try:
        holding.hold(setup, wanted, now)
    except JournalError as error:  # it is in force all the same
        print(f"not written into the journal: {error}", file=sys.stderr)
    lasts = "until `resume`" if until is None else f"until {moment(until)}, or `resume`"
    what = "nothing is done" if wanted.everything else f"nothing is done to {wanted.scope}"
    print(f"held: {what} {lasts} ({setup.config.hold_file})")
    return 0


def _resume(given: argparse.Namespace) -> int:
    setup, now = load_setup(given.config_file), time.time()
    scope = {"run": given.run, "worker": given.worker}
    why = holding.reason(given.why)
    done = holding.resume(setup, now, **scope, who=_person(), why=why)
    print(holding.told(done))
    for left in read_holds(setup.config.hold_file, now):
        print(f"still held: {left.scope} {left.told}".strip())
    return 0


def _person() -> str:
    """Who gives the command, as far as that can be told."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def _notify_test(given: argparse.Namespace) -> int:
    notify = load_setup(given.config_file).config.notify
    chosen = [one for one in notify.receivers if given.receiver in (None, one.name)]
    if not chosen:
        which = "" if given.receiver is None else f" called {given.receiver}"
        raise ValueError(f"{given.config_file}: `notify` names no receiver{which}")
    failed = 0
    for name, problem in asyncio.run(try_receivers(notify, chosen)):
        print(f"{name}: {f'not sent: {problem}' if problem else 'sent; has it arrived?'}")
        failed += bool(problem)
    return min(failed, 1)


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
    facts = action.perform("", lambda *_, **__: None, meant=shown)
    killed = f", {len(facts['killed'])} of them by SIGKILL" if facts["killed"] else ""
    print(f"ended {plural(len(facts['ended']), 'leftover')}{killed}; the memory is back")
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
}


if __name__ == "__main__":
    sys.exit(main())
