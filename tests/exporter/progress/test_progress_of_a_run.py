"""The progress of a run that leaves what AReaL leaves, followed by the whole exporter."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from trainwarden_exporter.app import Exporter, build_collectors
from trainwarden_exporter.collectors.checkpoints import CheckpointsCollector
from trainwarden_exporter.config import Config
from trainwarden_exporter.scrape.scraper import Outcome

TRIAL_PREFIX = "root/gsm8k-grpo/trial0"
COLLECTORS = ("workers", "checkpoints", "logs", "progress")


class Run:
    """Its folder, and an exporter that watches it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "outputs"
        self.log = self.folder / "logs" / TRIAL_PREFIX / "main.log"
        self.log.parent.mkdir(parents=True)
        self.config = Config.model_validate(
            {
                "state_folder": str(folder / "state"),
                "runs": [{"name": "grpo", "framework": "areal", "path": str(self.folder)}],
                "heartbeats": [{"name": "trainer", "run": "grpo"}],
            }
        )
        self.exporter = self.start()

    def start(self) -> Exporter:
        return Exporter(None, build=lambda _: build_collectors(self.config))

    def save(self, globalstep: int, *, age: float, files: int = 3) -> None:
        """Write a checkpoint as of `age` seconds ago, or the first `files` of what it needs."""
        name = f"epoch1epochstep0globalstep{globalstep}"
        folder = self.folder / "checkpoints" / TRIAL_PREFIX / "default" / name
        folder.mkdir(parents=True)
        then = time.time() - age
        for file in ("model.safetensors", "config.json", "tokenizer_config.json")[:files]:
            (folder / file).write_text("{}")
            os.utime(folder / file, (then, then))

    def say(self, *steps: int) -> None:
        with self.log.open("a") as log:
            for step in steps:
                log.write(f"INFO: Epoch 2/5 Step 1/935 Train step {step}/4675 done.\n")

    async def scrape(self) -> dict[str, float]:
        """The progress, by name and the labels beside the run."""
        outcomes: tuple[Outcome, ...] = await self.exporter.scraper.scrape(10, COLLECTORS)
        assert [str(outcome.error) for outcome in outcomes if outcome.error] == []
        return {
            " ".join(
                [
                    sample.name.removeprefix("trainwarden_training_"),
                    *list(sample.labels.values())[1:],
                ]
            ): sample.value
            for outcome in outcomes
            if outcome.collector == "progress"
            for family in outcome.families
            for sample in family.samples
        }

    async def until(self, name: str, value: float) -> dict[str, float]:
        """The progress once `name` has come to `value`."""
        deadline = time.monotonic() + 60
        while (values := await self.scrape()).get(name) != value:
            assert time.monotonic() < deadline, values
            time.sleep(0.05)  # noqa: ASYNC251 - nothing else runs in this loop
        return values


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


async def test_log_and_checkpoint_agree_over_a_resume_and_a_restart_of_the_exporter(
    run: Run,
) -> None:
    run.save(1869, age=3600)
    run.say(1869, 1870)
    values = await run.until("source_step checkpoint/default", 1870)
    values = await run.until("step", 1870)
    assert values["resumes_total"] == 0
    assert values["total_steps"] == 4675
    assert values["phase training"] == 1

    # the checkpoint may be read before the log, which then has shown no distance of two steps
    run.say(1871)
    await run.until("step", 1871)
    run.say(1501)
    values = await run.until("step", 1501)
    assert values["resumes_total"] == 1
    assert values["resume_step"] == 1500
    assert values["steps_repeated_total"] == 371
    assert values["source_step checkpoint/default"] == 1870

    run.exporter = run.start()
    run.say(1502)
    values = await run.until("step", 1502)
    assert values["resumes_total"] == 1


def test_a_checkpoint_that_is_being_written_is_a_save(run: Run) -> None:
    before = time.time()
    run.save(1869, age=3600)
    run.save(1874, age=5, files=1)
    collector = CheckpointsCollector(run.config.runs)
    list(collector.collect())
    ((name, since),) = (
        (run, since) for run, since in collector.saves_in_progress() if since is not None
    )
    assert name == "grpo"
    assert before - 5.001 <= since <= time.time() - 5
    assert [step for _, _, step, _, _ in collector.newest_checkpoints()] == [1870]


def test_a_half_written_file_is_none(run: Run) -> None:
    run.save(1869, age=3600)
    run.save(1874, age=600, files=1)
    collector = CheckpointsCollector(run.config.runs)
    list(collector.collect())
    assert set(collector.saves_in_progress()) == {("grpo", None)}
