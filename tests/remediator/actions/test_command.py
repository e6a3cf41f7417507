"""A worker that is restarted by a command of the operator's own, with real commands."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.hostile.hung_mount import hung_mount
from tests.remediator.process_yard import SLEEP, Steps, Yard, alive
from tests.remediator.samples import ROLLOUT
from tests.remediator.stage import Scene, Stage
from tests.waiting import until

from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.config_file.loader import load
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.processes.config import WorkerConfig
from trainwarden_exporter.processes.matching import Selector
from trainwarden_exporter.processes.procfs import read_environment, read_processes
from trainwarden_exporter.run_config import RunConfig
from trainwarden_remediator.actions import action_for
from trainwarden_remediator.actions.base import ActionState
from trainwarden_remediator.actions.command import (
    NO_PROCESS,
    OUTPUT_TAIL_BYTES,
    CommandAction,
)
from trainwarden_remediator.actions.descendants import DescendantTracker
from trainwarden_remediator.actions.spawn import (
    ACTION_VARIABLE,
    INHERITED_VARIABLES,
    UNBUFFERED,
    runs_command,
)
from trainwarden_remediator.config.restart_methods.command import CommandTarget
from trainwarden_remediator.config.schema import Config, Setup
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.exceptions import (
    ActionDeferredError,
    ActionError,
    NotEligibleError,
    OutcomeUnknownError,
)

ROLLOUT_MARK = f"demo/rollout-0/7/{uuid.uuid4().hex}"


class Bench:
    """A worker, the script that restarts it, and the action that runs the script."""

    def __init__(self, yard: Yard) -> None:
        self.yard = yard
        self.folder = yard.folder
        self.script = yard.folder / f"restart-{uuid.uuid4().hex}.sh"
        self.steps = Steps()
        self.now = 0.0
        self.action = self.acting("exit 0")

    def acting(self, script: str, **changes: Any) -> CommandAction:
        """An action by a shell script of that content."""
        file = self.script
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        command = {"restart": [str(file)], "cwd": self.folder, "grace": 5, "timeout": 30, **changes}
        target = Target.model_validate({"run": "demo", "worker": "rollout-0", "command": command})
        match = Selector.model_validate({"command": self.yard.mark})
        run = RunConfig(name="demo", workers=(WorkerConfig(name="rollout-0", match=match),))
        setup = Setup(Config(insecure=True, targets=(target,)), ExporterConfig(runs=(run,)))
        assert target.command is not None
        self.action = CommandAction(target, target.command, setup, clock=lambda: self.now)
        return self.action

    def worker_line(self) -> str:
        """A line of shell that starts the worker and goes on."""
        line = shlex.join([sys.executable, "-c", SLEEP, self.yard.mark])
        wait = "until [ -s worker.out ]; do sleep 0.05; done"
        return f"setsid {line} >worker.out 2>&1 & echo $! >worker.pid; {wait}"

    def perform(self, **given: Any) -> Any:
        try:
            return self.action.perform(ROLLOUT_MARK, self.steps, **given)
        finally:
            for identity in self.action._worker_processes():
                self.yard.care_for(identity.pid)

    def message(self) -> dict[str, Any]:
        (facts,) = (facts for step, facts in self.steps if step == "output")
        return facts


@pytest.fixture
def bench(yard: Yard) -> Bench:
    return Bench(yard)


def test_the_command_restarts_the_worker(bench: Bench) -> None:
    old = bench.yard.run(SLEEP)
    (before,) = bench.action.find_instances()
    bench.acting(f"kill {old.pid}; {bench.worker_line()}; echo started")
    facts = bench.perform(intended=[before])
    old.wait(60)
    assert facts["started_by"] == "trainwarden"
    assert facts["processes"] != [before]
    assert [step for step, _ in bench.steps] == ["restart", "output"]
    assert bench.message() == {"status": 0, "output": "started"}


def test_a_worker_that_does_not_run_is_started(bench: Bench) -> None:
    assert bench.action.find_instances() == [NO_PROCESS]
    bench.acting(bench.worker_line())
    assert bench.perform(intended=[NO_PROCESS])["processes"] != [NO_PROCESS]


def test_what_was_started_since_it_was_looked_at_is_left_alone(bench: Bench) -> None:
    intended = bench.action.find_instances()
    bench.yard.run(SLEEP)
    bench.acting("touch ran")
    assert bench.perform(intended=intended)["started_by"] == "another"
    assert not (bench.folder / "ran").exists()


def test_a_status_that_is_no_success_is_a_failure(bench: Bench) -> None:
    bench.acting("echo why >&2; exit 3", retry_exit_codes=[75])
    with pytest.raises(ActionError, match="failed with status 3") as caught:
        bench.perform()
    assert not isinstance(caught.value, NotEligibleError | OutcomeUnknownError)
    assert bench.message() == {"status": 3, "output": "why"}


def test_a_command_that_a_signal_ended_has_failed(bench: Bench) -> None:
    bench.acting("kill -KILL $$")
    with pytest.raises(ActionError, match="terminated by signal 9"):
        bench.perform()


def test_a_command_that_cannot_be_started_has_failed(bench: Bench) -> None:
    bench.acting("exit 0", restart=["/no/such/program"])
    with pytest.raises(ActionError, match="cannot start /no/such/program"):
        bench.perform()


def test_not_now_is_no_failure_and_is_not_asked_again_at_once(bench: Bench) -> None:
    bench.acting("echo ran >>runs; exit 75", retry_exit_codes=[75], retry_after=60)
    with pytest.raises(ActionDeferredError, match="cannot restart the worker now"):
        bench.perform()
    with pytest.raises(NotEligibleError, match="cannot restart the worker now"):
        bench.action.find_instances()
    successor = bench.acting("exit 0", retry_exit_codes=[75])
    successor.take_over_from(bench.action)
    bench.now = 59
    assert bench.action.find_instances()
    bench.now = 61
    bench.acting("echo ran >>runs; exit 75", retry_exit_codes=[75], retry_after=60)
    assert bench.action.find_instances() == [NO_PROCESS]


def test_a_reload_does_not_ask_sooner(bench: Bench) -> None:
    first = bench.acting("exit 75", retry_exit_codes=[75], retry_after=60)
    with pytest.raises(ActionDeferredError):
        bench.perform()
    successor = bench.acting("exit 75", retry_exit_codes=[75], retry_after=60)
    successor.take_over_from(first)
    with pytest.raises(NotEligibleError):
        successor.find_instances()
    bench.now = 61
    assert successor.find_instances() == [NO_PROCESS]


def test_a_command_that_takes_too_long_is_ended_with_all_that_is_of_its_session(
    bench: Bench,
) -> None:
    bench.acting(
        f"{bench.worker_line()}\n"
        "sleep 601 & echo $! >child.pid\n"
        "echo $$ >own.pid; sleep 602",
        timeout=3,
        grace=0,
    )  # fmt: skip
    with pytest.raises(OutcomeUnknownError, match="took longer than 3 s"):
        bench.perform()
    pids = [int((bench.folder / name).read_text()) for name in ("own.pid", "child.pid")]
    until(lambda: not any(map(alive, pids)))
    assert bench.message()["status"] is None
    # The worker that it has started is no part of it.
    assert alive(int((bench.folder / "worker.pid").read_text()))
    assert len(bench.action.find_instances()) == 1


def test_a_command_that_ignores_sigterm_is_killed(bench: Bench) -> None:
    bench.acting("trap '' TERM; echo $$ >own.pid; sleep 60; sleep 60", timeout=2, grace=0)
    with pytest.raises(OutcomeUnknownError):
        bench.perform()
    until(lambda: not alive(int((bench.folder / "own.pid").read_text())))


def test_only_the_end_of_a_long_output_is_kept(bench: Bench) -> None:
    bench.acting("head -c 200000 /dev/zero | tr '\\0' x; echo end")
    bench.perform()
    output = bench.message()["output"]
    assert len(output) <= OUTPUT_TAIL_BYTES
    assert output.endswith("xend")


def test_output_goes_to_the_log_and_what_was_there_before_is_not_its_own(bench: Bench) -> None:
    (bench.folder / "log").write_text("before\n")
    bench.acting("echo now", log=bench.folder / "log")
    bench.perform()
    assert bench.message()["output"] == "now"
    assert (bench.folder / "log").read_text() == "before\nnow\n"


def test_a_log_on_a_mount_that_never_answers_fails_the_action(bench: Bench, tmp_path: Path) -> None:
    with hung_mount(tmp_path) as (_, target, _):
        seen_from_here = Path(f"/proc/{target.partition('=')[2]}/root/{tmp_path}")
        bench.acting("touch ran", log=seen_from_here / "log")
        with pytest.raises(ActionError, match=r"cannot store output of .*does not answer"):
            bench.perform()
    assert not (bench.folder / "ran").exists()


def test_output_that_is_no_text_is_none_of_our_trouble(bench: Bench) -> None:
    bench.acting("printf '\\377\\376'")
    bench.perform()
    assert bench.message()["output"] == "\ufffd\ufffd"


def test_the_command_sees_only_what_is_passed_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    bench.acting("env; pwd", environment={"OWN": "yes"})
    bench.perform()
    *lines, folder = bench.message()["output"].splitlines()
    names = {line.partition("=")[0] for line in lines}
    assert {"OWN", ACTION_VARIABLE} <= names
    of_the_shell = {"PWD", "_", "OLDPWD", "SHLVL"}
    passed_on = {n for n in names if n in INHERITED_VARIABLES or n.startswith("LC_")}
    assert names - of_the_shell - passed_on == {"OWN", ACTION_VARIABLE, *UNBUFFERED}
    assert folder == str(bench.folder)


def test_no_shell_reads_the_arguments(bench: Bench) -> None:
    bench.acting("exit 0", restart=["/bin/echo", "$(touch hit)", ";", "-n"])
    bench.perform()
    assert bench.message()["output"] == "$(touch hit) ; -n"
    assert not (bench.folder / "hit").exists()


# after a crash


@pytest.fixture
def under_way(bench: Bench) -> Iterator[int]:
    """The pid of a command that an earlier life of the remediator has started."""
    bench.acting("sleep 600; true", timeout=600)
    pid = os.posix_spawn(
        str(bench.script),
        [str(bench.script)],
        {**os.environ, ACTION_VARIABLE: ROLLOUT_MARK},
        setsid=True,
    )
    until(lambda: (read_environment(pid) or {}).get(ACTION_VARIABLE) == ROLLOUT_MARK)
    yield pid
    for process in read_processes().values():
        if (read_environment(process.pid) or {}).get(ACTION_VARIABLE) == ROLLOUT_MARK:
            os.kill(process.pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_a_command_that_still_runs_is_waited_for(bench: Bench, under_way: int) -> None:
    until(lambda: bool(bench.action._running_commands(ROLLOUT_MARK)))
    with pytest.raises(ActionError, match="is still running"):
        bench.action.inspect(ROLLOUT_MARK, [NO_PROCESS])
    assert alive(under_way)


def test_no_second_command_is_begun_beside_it(bench: Bench, under_way: int) -> None:
    until(lambda: bool(bench.action._running_commands(ROLLOUT_MARK)))
    with pytest.raises(NotEligibleError, match="earlier action is still running"):
        bench.action.find_instances()
    with pytest.raises(NotEligibleError):
        bench.perform()
    assert alive(under_way)


def test_the_command_of_another_worker_is_none_of_its_own(bench: Bench, under_way: int) -> None:
    until(lambda: bool(bench.action._running_commands(ROLLOUT_MARK)))
    assert not bench.action._running_commands("demo/other/")
    assert alive(under_way)


def test_a_command_that_has_taken_too_long_is_ended_then(bench: Bench, under_way: int) -> None:
    until(lambda: bool(bench.action._running_commands(ROLLOUT_MARK)))
    bench.acting("sleep 600; true", timeout=0.001, grace=0)
    assert bench.action.inspect(ROLLOUT_MARK, [NO_PROCESS]) is ActionState.ENDED
    until(lambda: not alive(under_way))


def test_what_is_found_after_a_crash_is_reported_by_the_worker(bench: Bench) -> None:
    old = bench.yard.run(SLEEP)
    before = bench.action.find_instances()
    assert bench.action.inspect(ROLLOUT_MARK, before) is ActionState.UNTOUCHED
    old.kill()
    old.wait()
    assert bench.action.inspect(ROLLOUT_MARK, before) is ActionState.ENDED
    bench.yard.run(SLEEP)
    assert bench.action.inspect(ROLLOUT_MARK, before) is ActionState.STARTED


def test_what_was_cut_short_is_not_done_again(bench: Bench) -> None:
    bench.acting("touch ran")
    with pytest.raises(ActionError, match="command is not run again"):
        bench.action.finish(ROLLOUT_MARK, bench.steps)
    assert not (bench.folder / "ran").exists()


@pytest.mark.parametrize(
    ("line", "same"),
    [
        (("/opt/r.sh", "a"), True),
        (("/bin/sh", "/opt/r.sh", "a"), True),
        (("/usr/bin/env", "-S", "/opt/r.sh", "a"), True),
        (("/opt/r.sh", "a", "b"), False),
        (("/opt/r.sh",), False),
        (("python", "worker.py"), False),
        ((), False),
    ],
)
def test_a_command_is_identified_by_its_line(line: tuple[str, ...], same: bool) -> None:
    assert runs_command(("/opt/r.sh", "a"), line) is same


# in the engine


async def test_an_action_with_an_unknown_result_is_verified_and_not_repeated(stage: Stage) -> None:
    scene: Scene
    async with stage(attempts=3, cooldown=1) as scene:
        worker = scene.observer.workers[ROLLOUT]

        def restart() -> None:
            restarted = replace(worker, started_at=scene.clock.now(), memory_bytes=1e9)
            scene.observer.workers[ROLLOUT] = restarted

        scene.action.before = restart
        scene.action.error = OutcomeUnknownError("took too long")
        scene.hear()
        await scene.pass_time(120)
        assert len(scene.action.restarts) == 1
        assert scene.done()[:5] == ["alert", "intent", "stop", "failed", "healed"]


async def test_an_act_that_was_not_to_be_now_is_no_attempt(stage: Stage) -> None:
    scene: Scene
    async with stage(attempts=1) as scene:

        def relent() -> None:
            if len(scene.action.restarts) > 1:
                scene.action.error = None

        scene.action.before = relent
        scene.action.error = ActionDeferredError("not now")
        scene.hear()
        await scene.pass_time(60)
        assert len(scene.action.restarts) == 2
        found = [word for word in scene.done() if word not in ("alert", "stop", "start")]
        assert found == ["intent", "interrupted", "intent", "done", "healed"]


# configuration

CONFIG = """\
insecure: true
targets:
  - run: demo
    worker: rollout-0
    command:
      restart: [/opt/restart.sh, rollout-0]
      retry_exit_codes: [{status}]
"""


def test_a_command_is_configured(tmp_path: Path) -> None:
    (tmp_path / "remediator.yml").write_text(CONFIG.format(status=75))
    config = load(tmp_path / "remediator.yml", Config)
    (target,) = config.targets
    assert target.restart_method.summary == "/opt/restart.sh rollout-0"
    setup = Setup(config, ExporterConfig())
    action = action_for(target, setup, DescendantTracker(_NoRecords()))
    assert isinstance(action, CommandAction)
    # No parameter can name a worker that the exporter's file does not name.
    with pytest.raises(ActionError, match="rollout-0 is no longer in"):
        action.find_instances()


def test_one_command_restarts_one_target() -> None:
    command = CommandTarget(restart=("/opt/r",))
    assert command.restarts_same(CommandTarget(restart=("/opt/r",), grace=3))
    assert not command.restarts_same(CommandTarget(restart=("/opt/r",), environment={"RANK": "1"}))


def test_success_cannot_mean_not_now(tmp_path: Path) -> None:
    (tmp_path / "remediator.yml").write_text(CONFIG.format(status=0))
    with pytest.raises(ConfigError, match=r"remediator\.yml:7: .*retry_exit_codes"):
        load(tmp_path / "remediator.yml", Config)


class _NoRecords:
    def save_descendants(self, boot: str, descendants_by_root: Any) -> None:
        pass

    def load_descendants(self, boot: str) -> Any:
        return {}
