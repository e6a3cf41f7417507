"""The state of a unit, and the calls of systemctl; the client is a stand-in here."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trainwarden_exporter.processes.systemd_units import parse_unit
from trainwarden_remediator.actions import systemd
from trainwarden_remediator.actions.systemd import SystemdAction, managed_instance
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.exceptions import ActionError, NotEligibleError

ONE = "0123456789abcdef0123456789abcdef"
RUNNING: Mapping[str, str] = {
    "Names": "w.service",
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "running",
    "Result": "success",
    "InvocationID": ONE,
    "MainPID": "0",
    "ExecMainStartTimestampMonotonic": "1000",
    "ExecMainExitTimestampMonotonic": "0",
    "ActiveExitTimestampMonotonic": "0",
}
ENDED = {"ActiveState": "inactive", "SubState": "dead"}
ENDED_ALONE = {"ExecMainExitTimestampMonotonic": "2000", "ActiveExitTimestampMonotonic": "2001"}
STOPPED = {"ExecMainExitTimestampMonotonic": "2001", "ActiveExitTimestampMonotonic": "2000"}
EARLIER = {"ExecMainExitTimestampMonotonic": "2000", "ActiveExitTimestampMonotonic": "900"}
FAILED = {"ActiveState": "failed", "SubState": "failed", "Result": "exit-code"}


def shown(**changes: str) -> str:
    return "".join(f"{name}={value}\n" for name, value in {**RUNNING, **changes}.items())


@pytest.mark.parametrize(
    ("changes", "running", "blocker"),
    [
        ({}, True, ""),
        ({"ActiveState": "reloading", "SubState": "reload"}, True, ""),
        ({"ActiveState": "activating", "SubState": "start"}, True, "is activating (start)"),
        ({"ActiveState": "deactivating", "SubState": "stop-sigterm"}, True, "is deactivating"),
        (
            {"ActiveState": "activating", "SubState": "auto-restart", **ENDED_ALONE},
            True,
            "about to start w.service again",
        ),
        ({"SubState": "auto-restart-queued"}, True, "about to start w.service again"),
        ({"Job": "77"}, True, "a job for w.service is already queued"),
        ({"LoadState": "masked"}, True, "is masked"),
        ({**FAILED, **ENDED_ALONE}, False, ""),
        ({**ENDED, **ENDED_ALONE}, False, ""),
        ({**ENDED, **STOPPED}, False, "was stopped on request"),
        ({**FAILED, **STOPPED}, False, "was stopped on request"),
        ({**FAILED, **STOPPED, "Result": "timeout"}, False, "was stopped on request"),
        ({**FAILED, **STOPPED, "Result": "oom-kill"}, False, ""),
        ({**FAILED, **STOPPED, "Result": "watchdog"}, False, ""),
        # never became active: only its clean exit shows that it was stopped on request
        ({**FAILED, **EARLIER}, False, ""),
        ({**ENDED, **EARLIER}, False, "was stopped on request"),
        (
            {**ENDED, "InvocationID": "", "ExecMainStartTimestampMonotonic": "0"},
            False,
            "no record of a run",
        ),
    ],
)
def test_each_state_says_what_may_be_done(
    changes: dict[str, str], *, running: bool, blocker: str
) -> None:
    found = managed_instance("w.service", parse_unit(shown(**changes)))
    assert found.running is running
    assert blocker in found.blocker
    assert bool(found.blocker) is bool(blocker)


def test_a_unit_is_identified_by_its_invocation() -> None:
    first = managed_instance("w.service", parse_unit(shown()))
    assert first.identity == f"w.service {ONE}"
    ended = managed_instance("w.service", parse_unit(shown(**FAILED, **ENDED_ALONE)))
    assert ended.identity == first.identity
    restarted = managed_instance("w.service", parse_unit(shown(InvocationID="f" * 32)))
    assert restarted.identity != first.identity


@pytest.mark.parametrize("text", ["", "nonsense", "LoadState=loaded\n", shown(MainPID="x")])
def test_what_is_no_unit_is_no_answer(text: str) -> None:
    with pytest.raises(ValueError, match="not a description"):
        parse_unit(text)


FAKE = """\
#!{python}
import pathlib, sys
here = pathlib.Path({folder!r})
with open(here / "asked", "a") as file:
    file.write("\\0".join(sys.argv[1:]) + "\\n")
verb = next(word for word in sys.argv[1:] if not word.startswith("-"))
answer = here / verb
if not answer.exists():
    sys.exit(f"Failed to {{verb}}: no such thing")
for state in sorted(here.glob("after-" + verb)):
    state.rename(here / "show")
sys.stdout.write(answer.read_text()) if answer.exists() else None
"""


class Client:
    """A stand-in for systemctl: it prints the content of files, and records its commands.

    After `restart` or `start` it shows the properties in `after`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "systemctl"
        self.program.write_text(FAKE.format(python=sys.executable, folder=str(folder)))
        self.program.chmod(0o755)
        self.says("show", shown())

    def says(self, verb: str, text: str = "") -> None:
        (self.folder / verb).write_text(text)

    def after(self, verb: str, **changes: str) -> None:
        self.says(verb)
        self.says(f"after-{verb}", shown(**changes))

    def asked(self) -> list[list[str]]:
        lines = (self.folder / "asked").read_text().splitlines()
        return [line.split("\0") for line in lines]

    def reported(self) -> list[list[str]]:
        return [words for words in self.asked() if "show" not in words]

    def action(self, **settings: Any) -> SystemdAction:
        content = {"unit": "w.service", **settings}
        target = Target.model_validate({"run": "demo", "worker": "w", "systemd": content})
        assert target.systemd is not None
        return SystemdAction(target, target.systemd, systemctl=str(self.program))


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path)


def record_step(*_: Any, **__: Any) -> None:
    pass


OPTIONS = ["--system", "--no-pager", "--no-ask-password"]


def test_the_name_comes_after_the_options_and_no_job_is_replaced(client: Client) -> None:
    client.after("try-restart", InvocationID="f" * 32)
    client.action().perform("m", record_step)
    assert client.reported() == [[*OPTIONS, "try-restart", "--job-mode=fail", "--", "w.service"]]
    assert all(words[-2:] == ["--", "w.service"] for words in client.asked())


def test_a_unit_that_was_stopped_meanwhile_is_not_reported_as_restarted(client: Client) -> None:
    client.after("try-restart", **ENDED, **STOPPED)
    with pytest.raises(ActionError, match=r"w.service was not restarted: w.service was stopped"):
        client.action().perform("m", record_step)
    assert len(client.reported()) == 1


def test_a_failed_one_is_started_and_its_limit_lifted_only_where_configured(
    client: Client,
) -> None:
    client.says("show", shown(**FAILED, **ENDED_ALONE))
    client.after("start", InvocationID="f" * 32)
    client.says("reset-failed")
    client.action().perform("m", record_step)
    assert [words[3] for words in client.reported()] == ["start"]
    client.says("show", shown(**FAILED, **ENDED_ALONE))
    client.action(reset_failed=True).perform("m", record_step)
    assert [words[3] for words in client.reported()] == ["start", "reset-failed", "start"]


def test_a_job_that_fails_is_reported_in_the_words_of_systemctl_and_not_repeated(
    client: Client,
) -> None:
    with pytest.raises(ActionError, match=r"systemctl try-restart w\.service: Failed to try-"):
        client.action().perform("m", record_step)
    assert len(client.reported()) == 1


def test_a_manager_that_does_not_answer_is_an_error(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd, "ANSWER_SECONDS", 0.2)
    client.program.write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(ActionError, match=r"not through within 0\.2 s"):
        client.action().find_instances()


@pytest.mark.parametrize("load", ["not-found", "bad-setting", "error"])
def test_a_unit_that_cannot_be_loaded_is_not_acted_upon(client: Client, load: str) -> None:
    client.says("show", shown(LoadState=load))
    with pytest.raises(ActionError, match=f"w.service is {load}"):
        client.action().find_instances()


def test_another_name_of_a_protected_unit_is_refused(client: Client) -> None:
    client.says("show", shown(Names="w.service prometheus.service"))
    with pytest.raises(ActionError, match=r"refused: prometheus\.service is protected"):
        client.action().find_instances()


def test_a_masked_unit_is_left_alone(client: Client) -> None:
    client.says("show", shown(LoadState="masked"))
    with pytest.raises(NotEligibleError, match="masked"):
        client.action().find_instances()
    assert client.reported() == []


def test_the_manager_of_an_account_is_asked_as_that_account(client: Client) -> None:
    with pytest.raises(ActionError, match="no user nobody-of-that-name"):
        client.action(user="nobody-of-that-name").find_instances()
    client.action(user="root").find_instances()
    assert client.asked()[-1][0] == "--user"


def test_no_systemctl_is_an_error(client: Client) -> None:
    client.program.unlink()
    with pytest.raises(ActionError, match="cannot run"):
        client.action().find_instances()
