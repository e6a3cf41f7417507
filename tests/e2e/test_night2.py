"""Night 2, the inference server dies and nobody notices: the whole stack and six AReaL runs."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import areal_trainer
import fake_serving
from areal_trainer import IN_FLIGHT, Traces
from box import Box, Part, Run, Watcher, a_box, events, post, value, values
from measuring import LIMITS, Measure
from ports import free_port
from running import Up, up

CHECKPOINT = 1869
"""The step of the checkpoint as AReaL counts, from zero: 1870 steps are done."""
SEEN_SECONDS, HEALED_SECONDS = LIMITS[2].seen, LIMITS[2].healed
HUNG_SECONDS, LONGEST_SECONDS = 240, 480
EXCUSED_SECONDS = 45.0
TELLING = frozenset({"intent", "result", "outcome"})

VARIANTS: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "resumes": ("sglang", (), ()),
    "restarted": ("sglang", (), ("--loses-heart",)),
    "hung": ("vllm", ("--clients", "3"), ("--api", "/v1/completions")),
    "loading": ("sglang", (), ()),
    "paused": ("sglang", (), ()),
    "returns": ("sglang", (), ()),
}
"""By run: its engine, and more arguments for server and trainer."""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the stack watches processes through /proc"
)


def a_run(folder: Path, name: str, port: int) -> Run:
    engine, of_server, of_trainer = VARIANTS[name]
    root = folder / name
    wandb = Traces(root).log.parent / "wandb" / "output.log"
    server = (
        *(sys.executable, fake_serving.__file__, "--engine", engine, "--port", str(port)),
        *("--starting", "2", *of_server, "--of", root),
    )
    trainer = (
        *(sys.executable, areal_trainer.__file__, "--root", root, "--copy", wandb),
        *("--server", f"http://127.0.0.1:{port}", "--save-every", "100000", *of_trainer),
    )
    place = re.escape(str(root))
    return Run(
        name,
        (
            Part("inference", "inference", server, rf"fake_serving\.py .*--of {place}$"),
            Part("trainer", "trainer", trainer, rf"areal_trainer\.py --root {place} "),
        ),
        {
            "framework": "areal",
            "path": str(root),
            "inference": [
                {
                    "name": "server",
                    "engine": engine,
                    "worker": "inference",
                    "url": f"http://127.0.0.1:{port}",
                    "start_grace": "30s",
                }
            ],
        },
    )


@dataclass(frozen=True)
class Night:
    box: Box
    ports: Mapping[str, int]

    def switch(self, run: str, state: str) -> None:
        post(f"http://127.0.0.1:{self.ports[run]}/fake/{state}")


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    folder = tmp_path_factory.mktemp("night2")
    ports = {name: free_port() for name in VARIANTS}
    for name in VARIANTS:
        Traces(folder / name).save(CHECKPOINT, at=time.time() - 300)
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

    seen: Mapping[str, Mapping[str, float]]
    """By run and alert, when it was there and not muted."""
    journal: list[dict[str, Any]]
    began: float
    refused: Mapping[str, float]
    """Matches of refused connections, all logs of the run together."""
    resumed: Mapping[str, float | None]
    """The first step after a resume."""
    unchanged: Mapping[str, bool]

    def journaled(self, run: str, kind: str, worker: str) -> list[dict[str, Any]]:
        found = events(self.journal, run, kind)
        return [dict(event) for event in found if event["worker"] == worker]

    def at(self, run: str, kind: str, worker: str = "inference") -> float:
        return float(self.journaled(run, kind, worker)[0]["at"]) - self.began


def makes_steps(stack: Up, name: str) -> bool:
    return (value(stack, "training_step", run=name) or 0) > CHECKPOINT + 3


@pytest.fixture(scope="module")
def story(night: Night, stack: Up) -> Story:
    box = night.box
    stack.wait_until(lambda: all(makes_steps(stack, name) for name in VARIANTS), 180)
    stack.wait_until(
        lambda: all(value(stack, "inference_up", run=name) == 1 for name in VARIANTS), 30
    )
    watcher = Watcher(stack)
    time.sleep(15)  # so that the windows of the rules hold what is well
    watcher.look()
    before = {run: dict(alerts) for run, alerts in watcher.seen.items() if run in VARIANTS}
    assert before == {}, before

    began = time.time()
    for name in ("resumes", "restarted", "returns"):
        box.kill(name, "inference")
    night.switch("hung", "stuck=true")
    night.switch("loading", "updating=true")
    night.switch("paused", "paused=true")
    time.sleep(1)
    box.start("returns", "inference")
    excused = True

    def all_healed() -> bool:
        nonlocal excused
        watcher.look()
        if excused and time.time() - began > EXCUSED_SECONDS:
            excused = False
            night.switch("loading", "updating=false")
            night.switch("paused", "paused=false")
        journal = stack.journal(box.config / "remediator.yml")
        done = {(e["run"], e["worker"]) for e in journal if e["kind"] == "outcome"}
        wanted = {(name, "inference") for name in ("resumes", "restarted", "hung")}
        return not excused and wanted | {("restarted", "trainer")} <= done

    stack.wait_until(all_healed, LONGEST_SECONDS)
    return Story(
        seen={
            run: {name: at - began for name, at in alerts.items()}
            for run, alerts in watcher.seen.items()
        },
        journal=stack.journal(box.config / "remediator.yml"),
        began=began,
        refused={
            name: sum(values(stack, "log_matches_total", run=name, pattern="connection_refused"))
            for name in VARIANTS
        },
        resumed={
            name: value(stack, "training_first_step_after_resume", run=name) for name in VARIANTS
        },
        unchanged={name: box.unchanged(name) for name in VARIANTS},
    )


def test_it_is_seen_and_healed_in_time(story: Story, measured: Measure) -> None:
    down, hung = "TrainingInferenceDown", "TrainingInferenceHung"
    measured(2, "the server dead: seen", story.seen["resumes"][down], SEEN_SECONDS)
    for run, what in (("resumes", "healed: it answers"), ("restarted", "of a run that gave up")):
        measured(2, what, story.at(run, "outcome"), HEALED_SECONDS)
    went_on = story.at("restarted", "outcome", "trainer")
    measured(2, "that run restarted as well, and gone on", went_on, HUNG_SECONDS)
    measured(2, "the server hung: seen", story.seen["hung"][hung], HUNG_SECONDS)
    measured(2, "healed", story.at("hung", "outcome"), HUNG_SECONDS)


@pytest.mark.parametrize(
    ("run", "alert", "afterwards"),
    [
        ("resumes", "TrainingInferenceDown", set()),
        # the server is well again, and the run stands still all the same
        ("restarted", "TrainingInferenceDown", {"TrainingStepStalled"}),
        ("hung", "TrainingInferenceHung", set()),
    ],
)
def test_it_is_one_problem_and_the_server_is_restarted_once(
    story: Story, run: str, alert: str, afterwards: set[str]
) -> None:
    assert alert in story.seen[run]
    assert set(story.seen[run]) - {alert} <= afterwards
    healed = story.at(run, "outcome")
    assert all(at > healed for name, at in story.seen[run].items() if name in afterwards)
    intents = story.journaled(run, "intent", "inference")
    outcomes = [event["facts"]["outcome"] for event in story.journaled(run, "outcome", "inference")]
    assert (len(intents), outcomes) == (1, ["healed"])
    assert intents[0]["alert"] == alert


@pytest.mark.parametrize("run", ["resumes", "hung"])
def test_a_trainer_that_recovers_alone_is_left_alone(story: Story, run: str) -> None:
    assert story.journaled(run, "intent", "trainer") == []


def test_a_trainer_that_does_not_goes_on_with_the_step_after_the_checkpoint(story: Story) -> None:
    (intent,) = story.journaled("restarted", "intent", "trainer")
    (outcome,) = story.journaled("restarted", "outcome", "trainer")
    assert outcome["facts"]["outcome"] == "healed"
    assert intent["at"] > story.journaled("restarted", "outcome", "inference")[0]["at"]
    # 1870 steps were done when the checkpoint was made; AReaL calls the next one global step 1870
    assert story.resumed["restarted"] == CHECKPOINT + 2


def test_an_error_in_a_log_and_its_copy_is_one(night: Night, story: Story) -> None:
    traces = Traces(night.box.folder / "restarted")
    copy = traces.log.parent / "wandb" / "output.log"
    lines = [path.read_text().count("ConnectionRefusedError") for path in (traces.log, copy)]
    assert lines == [IN_FLIGHT, IN_FLIGHT]
    assert story.refused["restarted"] == IN_FLIGHT


@pytest.mark.parametrize("run", ["loading", "paused", "returns"])
def test_what_is_no_fault_provokes_nothing(story: Story, run: str) -> None:
    assert story.seen.get(run, {}) == {}
    assert [event for event in story.journal if event["run"] == run] == []
    assert story.unchanged[run]
