"""What a run logs between two exporters, as between `trainwarden down` and `trainwarden up`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwarden_exporter.app import Exporter, build_collectors
from trainwarden_exporter.config import Config
from trainwarden_exporter.logs.counters import ErrorLine

ERROR = "RuntimeError: CUDA error: device-side assert triggered"
TRAINER = f"""
import sys
for line in sys.stdin:
    form, first, last = line.split(";")
    for step in range(int(first), int(last) + 1):
        print(form.format(step), f"loss={{1 / step:.4f}}", end=chr(13 if "|" in form else 10))
    sys.stdout.flush()
print("\\n{ERROR}", flush=True)
sys.exit(1)
"""
FORMS = {
    "lines": "step {}",
    "lines with a total": "step {}/100",
    "bar": "train: 9%|#  | {}/100 [00:05<00:50, 1.98it/s]",
}


class Trainer:
    """A run whose process logs what it is asked for, and the exporter that watches it."""

    def __init__(self, folder: Path, form: str) -> None:
        self.form, self.folder, self.log = form, folder, folder / "train.log"
        self.pid_file = folder / "trainer.pid"
        self.log.touch()
        run = {
            "name": "demo",
            "path": str(folder),
            "workers": [
                {"name": "trainer", "role": "trainer", "match": {"pid_file": str(self.pid_file)}}
            ],
            "logs": [{"name": "main", "worker": "trainer", "files": [str(self.log)]}],
        }
        self.config = Config.model_validate({"state_folder": str(folder / "state"), "runs": [run]})

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", TRAINER], stdin=subprocess.PIPE, stdout=log, text=True
            )
        self.pid_file.write_text(str(self.process.pid))

    def make(self, first: int, last: int) -> None:
        """Makes steps, and waits for their lines."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{self.form};{first};{last}\n")
        self.process.stdin.flush()
        deadline = time.monotonic() + 60
        while f"loss={1 / last:.4f}" not in self.log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def crash(self) -> None:
        self.process.communicate()
        assert self.process.returncode == 1

    def watch(self) -> None:
        """Starts an exporter."""
        self.exporter = Exporter(None, build=lambda _: build_collectors(self.config))

    async def until(self, name: str, value: float) -> dict[str, float]:
        """Returns the metrics, by name and the labels beside the run, once `name` is `value`."""
        deadline = time.monotonic() + 60
        while (values := await self._scrape()).get(name) != value:
            assert time.monotonic() < deadline, values
            time.sleep(0.05)  # noqa: ASYNC251 - nothing else runs in this loop
        return values

    async def _scrape(self) -> dict[str, float]:
        outcomes = await self.exporter.scraper.scrape(10, ("workers", "logs", "progress"))
        assert [str(outcome.error) for outcome in outcomes if outcome.error] == []
        self.errors = [
            one.line
            for outcome in outcomes
            for one in outcome.artifacts
            if isinstance(one, ErrorLine)
        ]
        return {
            " ".join([sample.name.removeprefix("trainwarden_"), *sorted(sample.labels.values())]): (
                sample.value
            )
            for outcome in outcomes
            for family in outcome.families
            for sample in family.samples
        }


@pytest.fixture(params=FORMS)
def trainer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trainer]:
    one = Trainer(tmp_path, FORMS[request.param])
    one.start()
    yield one
    one.exporter.close()
    one.process.kill()
    one.process.communicate()


async def watched_until_step_12(trainer: Trainer) -> dict[str, float]:
    """Returns what the exporter has shown when it is stopped at step 12."""
    trainer.watch()
    await trainer.until("log_files demo main", 1)
    for first, last in ((1, 4), (5, 8), (9, 12)):
        trainer.make(first, last)
        before = await trainer.until("training_step demo", last)
        time.sleep(1.1)  # noqa: ASYNC251 - else its steps show no pace
    trainer.exporter.close()
    return before


async def test_the_steps_before_a_crash_that_nobody_has_seen_are_known(trainer: Trainer) -> None:
    await watched_until_step_12(trainer)
    trainer.make(13, 40)
    trainer.crash()
    for errors in ([ERROR], []):  # an exporter shows the lines that it has read first
        trainer.watch()
        values = await trainer.until("training_step demo", 40)
        assert values["log_error_lines_total demo main"] == 1
        assert values["log_value demo loss main"] == 1 / 40
        assert trainer.errors == errors
        assert values["training_resumes_total demo"] == 0
        trainer.exporter.close()

    trainer.watch()
    await trainer.until("training_step demo", 40)
    trainer.start()
    trainer.make(31, 33)
    values = await trainer.until("training_step demo", 33)
    assert values["training_resume_step demo"] == 30
    assert values["training_steps_repeated_total demo"] == 10


async def test_a_run_that_has_gone_on_unseen_keeps_its_pace(trainer: Trainer) -> None:
    before = await watched_until_step_12(trainer)
    trainer.make(13, 40)
    trainer.watch()
    after = await trainer.until("training_step demo", 40)
    pace = "training_step_duration_median_seconds demo"
    assert after[pace] == before[pace]
    trainer.make(41, 41)
    after = await trainer.until("training_step demo", 41)
    assert after["training_resumes_total demo"] == after["training_steps_repeated_total demo"] == 0
