"""The action by systemd, inside a system whose first process is a real one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.systemd.conftest import Box

PYTHON = "/opt/trainwarden/bin/python"
SECONDS = 60

ACT = """\
import json, os, signal, sys
from trainwarden_remediator.actions.systemd import SystemdAction
from trainwarden_remediator.exceptions import ActionError
from trainwarden_remediator.config.targets import Target
what, content, intended, die_at = json.loads(sys.argv[1])
target = Target.model_validate({"run": "demo", "worker": "w", "systemd": content})
action, output = SystemdAction(target, target.systemd), []
def record_step(step, **facts):
    output.append([step, facts["what"]])
    if step == die_at:
        os.kill(os.getpid(), signal.SIGKILL)
try:
    match what:
        case "processes":
            answer = action.find_instances()
        case "perform":
            answer = action.perform("m", record_step, intended)
        case "finish":
            answer = action.finish("m", record_step)
        case "standing":
            answer = action.inspect("m", intended).value
    print(json.dumps({"answer": answer, "output": output}))
except ActionError as error:
    print(json.dumps({"error": type(error).__name__, "why": str(error), "output": output}))
"""


class Units:
    """Units of one test, which are stopped and removed after it."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self._made: list[str] = []

    def make(self, name: str, *lines: str, command: str = "sleep 100000") -> str:
        """A service that is started; a line before `[` belongs to its section `[Service]`."""
        unit = f"{name}.service"
        self._made.append(unit)
        before = [line for line in lines if line.startswith("StartLimit")]
        after = [line for line in lines if not line.startswith("StartLimit")]
        text = "\n".join(
            ["[Unit]", *before, "[Service]", f"ExecStart=/bin/sh -c '{command}'", *after]
        )
        self.box.write(f"/etc/systemd/system/{unit}", f"{text}\n")
        self.box.run("systemctl", "daemon-reload")
        self.box.tries("systemctl", "start", unit)
        return unit

    def act(
        self, what: str, unit: str, *, intended: Any = None, die_at: str = "", **settings: Any
    ) -> Mapping[str, Any]:
        reported = json.dumps([what, {"unit": unit, **settings}, intended, die_at])
        output = self.box.tries(PYTHON, "/act.py", reported)
        found: dict[str, Any] = json.loads(output) if output else {}
        return found

    def now(self, unit: str) -> list[str]:
        """What the action would end now."""
        answer: list[str] = self.act("processes", unit)["answer"]
        return answer

    def wait_for(self, unit: str, name: str, value: str) -> None:
        self.box.wait_until(lambda: self.box.show(unit, name) == value, SECONDS)

    def kill(self, unit: str) -> None:
        self.box.run("kill", "-KILL", str(self.box.pid(unit)))

    def close(self) -> None:
        for unit in self._made:
            self.box.tries("systemctl", "unmask", "--runtime", unit)
            self.box.tries("systemctl", "kill", "--signal=KILL", unit)
            self.box.tries("systemctl", "stop", unit)
            self.box.tries("systemctl", "reset-failed", unit)
            self.box.run("rm", "-f", f"/etc/systemd/system/{unit}")
        self.box.run("systemctl", "daemon-reload")


@pytest.fixture
def units(box: Box) -> Iterator[Units]:
    box.write("/act.py", ACT)
    units = Units(box)
    yield units
    units.close()


def test_a_unit_is_restarted_by_one_job_and_no_other_is(units: Units) -> None:
    unit, other = units.make("w-plain"), units.make("w-other")
    before, others = units.now(unit), units.now(other)
    done = units.act("perform", unit, intended=before)
    assert done["output"] == [["restart", unit]]
    assert done["answer"]["started_by"] == "trainwarden"
    assert done["answer"]["processes"] == units.now(unit) != before
    assert units.now(other) == others
    assert units.box.show(unit, "ActiveState") == "active"


def test_a_unit_that_failed_is_started(units: Units) -> None:
    unit = units.make("w-killed")
    units.kill(unit)
    units.wait_for(unit, "ActiveState", "failed")
    done = units.act("perform", unit, intended=units.now(unit))
    assert done["output"] == [["start", unit]]
    assert units.box.show(unit, "ActiveState") == "active"


def test_a_unit_that_systemd_ended_at_its_time_limit_is_started(units: Units) -> None:
    unit = units.make("w-expired", "RuntimeMaxSec=2")
    units.wait_for(unit, "ActiveState", "failed")
    assert units.box.show(unit, "Result") == "timeout"
    done = units.act("perform", unit, intended=units.now(unit))
    assert done["output"] == [["start", unit]]
    assert units.box.show(unit, "ActiveState") == "active"


@pytest.mark.parametrize(
    ("command", "state"),
    [
        ("exec sleep 100000", "inactive"),
        # Many programs exit with an error when they are stopped: failed, and stopped all the same.
        ('trap "exit 1" TERM; while :; do sleep 1; done', "failed"),
        ('trap "" TERM; while :; do sleep 1; done', "failed"),
    ],
)
def test_a_unit_that_an_operator_has_stopped_is_left_alone(
    units: Units, command: str, state: str
) -> None:
    unit = units.make("w-stopped", "TimeoutStopSec=2", command=command)
    intended = units.now(unit)
    units.box.run("systemctl", "stop", unit)
    assert units.box.show(unit, "ActiveState") == state
    errors = {
        "processes": "NotEligibleError",
        # found out in the act: that is no attempt
        "perform": "ActionDeferredError",
        "finish": "NotEligibleError",
    }
    for what, error in errors.items():
        found = units.act(what, unit, intended=intended)
        if what == "perform" and "answer" in found:
            # systemd has forgotten the run of a unit that is neither active nor failed
            assert found["answer"]["started_by"] == "another"
        else:
            assert found["error"] == error, found
        assert found["output"] == []
    assert units.box.show(unit, "ActiveState") == state


def test_a_unit_that_was_masked_is_left_alone(units: Units) -> None:
    unit = units.make("w-masked")
    units.box.run("mv", f"/etc/systemd/system/{unit}", "/root/away")
    units.box.run("systemctl", "mask", "--runtime", unit)
    units.kill(unit)
    units.wait_for(unit, "ActiveState", "failed")
    assert units.act("processes", unit)["why"] == f"{unit} is masked"


def test_an_automatic_restart_by_systemd_is_left_alone(units: Units) -> None:
    unit = units.make("w-restart", "Restart=on-failure", "RestartSec=15")
    before = units.now(unit)
    units.kill(unit)
    units.wait_for(unit, "SubState", "auto-restart")
    errors = {"processes": "NotEligibleError", "perform": "ActionDeferredError"}
    for what, error in errors.items():
        found = units.act(what, unit, intended=before)
        assert found["error"] == error, found
        assert "is about to start" in found["why"]
        assert "(its Restart=)" in found["why"]
        assert found["output"] == []
    # systemd has it in hand, and what it started was not what was to be ended.
    units.wait_for(unit, "ActiveState", "active")
    pid = units.box.pid(unit)
    done = units.act("perform", unit, intended=before)
    assert (done["output"], done["answer"]["started_by"]) == ([], "another")
    assert units.box.pid(unit) == pid
    assert units.box.show(unit, "NRestarts") == "1"


def test_a_unit_that_systemd_has_given_up_is_started_only_where_that_is_allowed(
    units: Units,
) -> None:
    limits = ("StartLimitBurst=2", "StartLimitIntervalSec=3600")
    unit = units.make("w-limit", *limits, "Restart=on-failure", "RestartSec=0", command="exit 3")
    units.wait_for(unit, "ActiveState", "failed")
    units.wait_for(unit, "Job", "")
    before = units.now(unit)
    refused = units.act("perform", unit, intended=before)
    assert refused["error"] == "ActionError"
    expected = f"systemd refused to start {unit} (probably its start limit"
    assert refused["why"].startswith(expected), refused
    assert refused["output"] == [["start", unit]]
    assert units.now(unit) == before
    units.act("perform", unit, intended=before, reset_failed=True)
    units.wait_for(unit, "ActiveState", "failed")
    assert units.now(unit) != before


def test_a_unit_that_is_being_stopped_is_not_waited_for_to_be_started(units: Units) -> None:
    units.box.run("rm", "-f", "/run/w-traps")
    slow = 'trap "sleep 8; exit 0" TERM; echo > /run/w-traps; while :; do sleep 1; done'
    unit = units.make("w-slow", "TimeoutStopSec=60", command=slow)
    units.box.wait_until(lambda: units.box.tries("ls", "/run/w-traps"), SECONDS)
    units.box.run("systemctl", "stop", "--no-block", unit)
    units.wait_for(unit, "ActiveState", "deactivating")
    found = units.act("processes", unit)
    assert found["error"] == "NotEligibleError"
    units.wait_for(unit, "ActiveState", "inactive")


def test_killed_before_its_request_to_systemd_the_unit_is_found_untouched(units: Units) -> None:
    unit = units.make("w-before")
    before = units.now(unit)
    assert units.act("perform", unit, intended=before, die_at="restart") == {}
    assert units.act("standing", unit, intended=before)["answer"] == "untouched"
    assert units.now(unit) == before


def test_killed_while_systemd_restarts_it_the_unit_is_started_once(units: Units) -> None:
    wait = "until [ -e /run/w-go ]; do sleep 0.2; done"
    slow = f'echo >> /run/w-starts; trap "{wait}; exit 0" TERM; while :; do sleep 1; done'
    units.box.run("rm", "-f", "/run/w-starts", "/run/w-go")
    unit = units.make("w-during", "TimeoutStopSec=300", command=slow)
    before = units.now(unit)
    reported = json.dumps(["perform", {"unit": unit}, before, ""])
    stopping = f'[ "$(systemctl show --property=SubState --value {unit})" = stop-sigterm ]'
    kill = f'"$@" > /dev/null 2>&1 & until {stopping}; do sleep 0.1; done; kill -KILL $!'
    units.box.run("timeout", str(SECONDS), "sh", "-c", kill, "sh", PYTHON, "/act.py", reported)
    # It goes on without the remediator: the manager has it in hand.
    assert units.act("standing", unit, intended=before)["answer"] == "untouched"
    units.box.run("touch", "/run/w-go")
    units.box.wait_until(
        lambda: units.act("standing", unit, intended=before)["answer"] == "started", SECONDS
    )
    units.wait_for(unit, "ActiveState", "active")
    assert units.act("finish", unit)["answer"]["started_by"] == "another"
    assert len(units.box.run("cat", "/run/w-starts").splitlines() or [""]) <= 2
    assert units.box.run("wc", "-l", "/run/w-starts").split()[0] == "2"


def test_a_unit_that_has_ended_after_a_crash_is_started_once(units: Units) -> None:
    unit = units.make("w-ended")
    before = units.now(unit)
    units.kill(unit)
    units.wait_for(unit, "ActiveState", "failed")
    assert units.act("standing", unit, intended=before)["answer"] == "ended"
    assert units.act("finish", unit)["answer"]["started_by"] == "trainwarden"
    assert units.act("standing", unit, intended=before)["answer"] == "started"
    pid = units.box.pid(unit)
    assert units.act("finish", unit)["answer"]["started_by"] == "another"
    assert units.box.pid(unit) == pid


def test_a_unit_that_ignores_sigterm_is_killed_by_systemd_in_its_own_time(units: Units) -> None:
    deaf = 'trap "" TERM; while :; do sleep 1; done'
    unit = units.make("w-deaf", "TimeoutStopSec=2", command=deaf)
    before = units.now(unit)
    assert units.act("perform", unit, intended=before)["answer"]["started_by"] == "trainwarden"
    assert units.now(unit) != before


def test_another_name_of_something_protected_is_refused(units: Units) -> None:
    units.box.run(
        *("ln", "-sf", "/lib/systemd/system/systemd-journald.service"),
        "/etc/systemd/system/w-alias.service",
    )
    units.box.run("systemctl", "daemon-reload")
    try:
        found = units.act("perform", "w-alias.service")
        assert found["why"].startswith("refused: "), found
    finally:
        units.box.run("rm", "/etc/systemd/system/w-alias.service")


def test_a_unit_that_does_not_exist_is_an_error(units: Units) -> None:
    assert units.act("processes", "w-nothing.service")["why"] == "w-nothing.service is not-found"


def test_a_unit_of_an_accounts_own_manager_is_restarted_by_that_manager(units: Units) -> None:
    box = units.box
    box.run("mkdir", "-p", "/run/user/0", "/etc/systemd/user")
    box.write("/etc/systemd/user/w-mine.service", "[Service]\nExecStart=/bin/sleep 100000\n")
    # As logind and PAM start it where there are such.
    manager = ("--uid=0", "--unit=w-manager", "--setenv=XDG_RUNTIME_DIR=/run/user/0")
    box.run("systemd-run", *manager, "/lib/systemd/systemd", "--user")
    ask = ("env", "XDG_RUNTIME_DIR=/run/user/0", "systemctl", "--user")
    try:
        box.wait_until(
            lambda: box.tries(*ask, "is-system-running") in ("running", "degraded"), SECONDS
        )
        box.run(*ask, "start", "w-mine.service")
        before = units.act("processes", "w-mine.service", user="root")["answer"]
        done = units.act("perform", "w-mine.service", user="root", intended=before)
        assert done["answer"]["processes"] != before
        box.run(*ask, "stop", "w-mine.service")
        assert units.act("processes", "w-mine.service", user="root")["error"] == "NotEligibleError"
        # The machine's manager knows of no such unit.
        assert "not-found" in units.act("processes", "w-mine.service")["why"]
    finally:
        box.tries("systemctl", "stop", "w-manager.service")
        box.run("rm", "/etc/systemd/user/w-mine.service")
