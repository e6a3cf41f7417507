"""Night 4, a trainer waits for a batch that nobody writes: the whole stack, six PRIME-RL runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fake_serving
import prime_program
from box import Box, Part, Run, Watcher, a_box, events, post, value
from measuring import LIMITS, Measure
from ports import free_port
from running import Up, alive, up

SEEN_SECONDS, HEALED_SECONDS = LIMITS[4].seen, LIMITS[4].healed
LONGEST_SECONDS = 400
STEPS = 5
WAITING = "TrainingWaitingForRollouts"

RUNS = ("orchestrator_dead", "server_dead", "unwritable", "slow", "loading", "finished")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the stack watches processes through /proc"
)


def a_run(folder: Path, name: str, port: int) -> Run:
    outputs = folder / name / "outputs"
    url = f"http://127.0.0.1:{port}"
    program = (sys.executable, prime_program.__file__)
    place = re.escape(str(outputs))
    serving = (sys.executable, fake_serving.__file__, "--engine", "vllm", "--port", str(port))
    steps = ("--steps", "15") if name == "finished" else ()
    return Run(
        name,
        (
            Part(
                "inference",
                "inference",
                (*serving, "--of", outputs),
                rf"fake_serving\.py .*--of {place}$",
            ),
            Part(
                "orchestrator",
                "orchestrator",
                (*program, "orchestrator", "--outputs", outputs, "--server", url),
                rf"prime_program\.py orchestrator --outputs {place} ",
            ),
            Part(
                "trainer",
                "trainer",
                (*program, "trainer", "--outputs", outputs, *steps),
                rf"prime_program\.py trainer --outputs {place}(?: |$)",
                {"finishes": True},
            ),
        ),
        {
            "framework": "prime_rl",
            "path": str(outputs),
            "inference": [{"name": "vllm", "engine": "vllm", "worker": "inference", "url": url}],
        },
    )


@dataclass(frozen=True)
class Night:
    box: Box
    ports: Mapping[str, int]

    def outputs(self, run: str) -> Path:
        return self.box.folder / run / "outputs"


@contextmanager
def not_writable(folder: Path) -> Iterator[None]:
    """For anybody: root writes to whatever its modes say, but not to what is mounted read-only."""
    if os.geteuid() != 0:
        folder.chmod(0o555)
        yield
        folder.chmod(0o755)
        return
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    folder = tmp_path_factory.mktemp("night4")
    ports = {name: free_port() for name in RUNS}
    for name in RUNS:
        (folder / name / "outputs" / "rollouts").mkdir(parents=True)
    with a_box(folder, [a_run(folder, name, port) for name, port in ports.items()]) as box:
        yield Night(box, ports)


@pytest.fixture(scope="module")
def stack(night: Night) -> Iterator[Up]:
    with up(night.box.folder / "stack", CONFIG=str(night.box.config), MODE="act") as running:
        running.wait_until_up()
        yield running


@dataclass(frozen=True)
class Story:
    """What happened. Times in seconds from the fault."""

    began: float
    usual: float
    """Seconds that a step usually takes."""
    causes: Mapping[str, Mapping[str, float]]
    """By run and cause, when the alert fired; muted or not."""
    seen: Mapping[str, Mapping[str, float]]
    """By run and alert, when it was there and not muted."""
    journal: list[dict[str, Any]]
    steps: Mapping[str, tuple[float, float]]
    """The step of each run at the fault and in the end."""
    unchanged: Mapping[str, bool]

    def outcomes(self, run: str) -> dict[str, str]:
        return {e["worker"]: e["facts"]["outcome"] for e in events(self.journal, run, "outcome")}

    def healed(self, run: str) -> float:
        return float(events(self.journal, run, "outcome")[0]["at"]) - self.began


@pytest.fixture(scope="module")
def story(night: Night, stack: Up) -> Story:
    box = night.box

    def step(run: str) -> float:
        return value(stack, "training_step", run=run) or 0

    stack.wait_until(lambda: all(step(name) >= STEPS for name in RUNS), 180)
    stack.wait_until(lambda: value(stack, "training_finished", run="finished") == 1, 180)
    usual = value(stack, "training_step_duration_median_seconds", run="slow")
    assert usual is not None
    watcher = Watcher(stack)
    everything = Watcher(stack, muted=True)
    watcher.look()
    assert not set(watcher.seen) & set(RUNS), watcher.seen
    before = {name: step(name) for name in RUNS}
    causes: dict[str, dict[str, float]] = {name: {} for name in RUNS}

    began = time.time()
    with ExitStack() as faults:
        box.kill("orchestrator_dead", "orchestrator")
        box.kill("server_dead", "inference")
        faults.enter_context(not_writable(night.outputs("unwritable") / "rollouts"))
        slow = box.started["slow", "orchestrator"]
        os.kill(slow.pid, signal.SIGSTOP)
        faults.callback(os.kill, slow.pid, signal.SIGCONT)
        post(f"http://127.0.0.1:{night.ports['loading']}/fake/updating=true")

        def all_reported() -> bool:
            watcher.look()
            everything.look()
            for name in RUNS:
                for alert in everything.now.get(name, ()):
                    if alert["labels"]["alertname"] == WAITING:
                        cause = alert["labels"]["cause"]
                        causes[name].setdefault(cause, time.time() - began)
            journal = stack.journal(box.config / "remediator.yml")
            healed = {e["run"] for e in journal if e["kind"] == "outcome"}
            named = all(causes[name] for name in ("unwritable", "slow", "loading"))
            # to the end, so that what should not happen has had its time
            return named and healed >= {"orchestrator_dead", "server_dead"}

        stack.wait_until(all_reported, LONGEST_SECONDS)
        unchanged = {name: box.unchanged(name) for name in ("unwritable", "slow", "loading")}
    post(f"http://127.0.0.1:{night.ports['loading']}/fake/updating=false")
    going_on = ("slow", "unwritable", "loading")
    stack.wait_until(lambda: all(step(name) > before[name] + 2 for name in going_on), 180)
    return Story(
        began,
        usual,
        causes,
        {
            run: {name: at - began for name, at in alerts.items()}
            for run, alerts in watcher.seen.items()
        },
        stack.journal(box.config / "remediator.yml"),
        {name: (before[name], step(name)) for name in RUNS},
        unchanged,
    )


def test_what_is_dead_is_healed_in_time(story: Story, measured: Measure) -> None:
    runs = {"orchestrator_dead": "TrainingWorkerGone", "server_dead": "TrainingInferenceDown"}
    for name, alert in runs.items():
        measured(4, f"{name}: seen", story.seen[name][alert], SEEN_SECONDS)
        measured(4, f"{name}: healed", story.healed(name), HEALED_SECONDS)
    for name in ("unwritable", "slow", "loading"):
        for cause, at in story.causes[name].items():
            measured(4, f"{name}: named ({cause})", at, SEEN_SECONDS + story.usual)
    assert story.outcomes("orchestrator_dead") == {"orchestrator": "healed"}
    assert story.outcomes("server_dead") == {"inference": "healed"}


@pytest.mark.parametrize("run", ["orchestrator_dead", "server_dead", "unwritable", "slow"])
def test_the_run_goes_on_with_the_next_step(story: Story, run: str) -> None:
    before, after = story.steps[run]
    assert after > before


@pytest.mark.parametrize(
    ("run", "cause"), [("unwritable", "folder_not_writable"), ("slow", "slow"), ("loading", "slow")]
)
def test_the_part_at_fault_is_named_and_no_worker_is_restarted(
    story: Story, run: str, cause: str
) -> None:
    assert set(story.causes[run]) == {cause}
    assert events(story.journal, run, "intent", "outcome") == []
    assert story.unchanged[run]


@pytest.mark.parametrize(
    ("run", "alert", "cause"),
    [
        ("orchestrator_dead", "TrainingWorkerGone", "producer_gone"),
        ("server_dead", "TrainingInferenceDown", "inference_down"),
    ],
)
def test_a_dead_part_is_one_problem(story: Story, run: str, alert: str, cause: str) -> None:
    assert set(story.seen[run]) == {alert}
    assert set(story.causes[run]) <= {cause}


def test_a_run_that_has_finished_waits_for_nothing(story: Story) -> None:
    assert story.seen.get("finished", {}) == {}
    assert events(story.journal, "finished", "alert", "intent") == []


@pytest.mark.usefixtures("story")
def test_a_stopped_producer_was_not_replaced(night: Night) -> None:
    assert alive(night.box.started["slow", "orchestrator"])
