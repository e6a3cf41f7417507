"""Prometheus alone is dead: Alertmanager and the exporter live, and no alert will ever come again.

Alertmanager repeats the heartbeat until that has run out, four times as long after the last one as
Prometheus may take to repeat it; from then on there is silence.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import leaky_worker
from box import Box, Part, Run, events, post
from parts import Parts, Person, parts
from running import alive, fetch

LONGEST_SECONDS = 400
SILENCE_SECONDS, BEAT_SECONDS = 8, 2
"""Shorter than shipped, to be waited for here: the silence, and from one heartbeat to the next."""

SIZES = {"small": 20 << 20, "large": 60 << 20}
RUN = "search"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the stack watches processes through /proc"
)


def a_run(folder: Path) -> Run:
    parts = [
        Part(
            name,
            "worker",
            (sys.executable, "-S", leaky_worker.__file__, "--of", folder, "--name", name),
            rf"leaky_worker\.py --of {re.escape(str(folder))} --name {name}$",
        )
        for name in SIZES
    ]
    return Run(RUN, parts, {"path": str(folder)})


class Scene:
    """The stack, a receiver of the remediator, and another receiver of Alertmanager."""

    def __init__(self, folder: Path) -> None:
        self.called = Person()
        self.box = Box(folder, [a_run(folder)])
        self.box.write()
        receiver = {"name": "phone", "kind": "json", "url": self.called.url}
        self.change(
            "remediator", failsafe={"watchdog_timeout": SILENCE_SECONDS, "shortage_duration": 3}
        )
        self.change("remediator", notify={"receivers": [receiver]})
        self.floor(0)
        for name, size in SIZES.items():
            (folder / f"{name}.orders").write_text(f"hold {size}\n")
            self.box.start(RUN, name)

    def change(self, part: str, **sections: Any) -> None:
        file = self.box.config / f"{part}.yml"
        file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **sections}))

    def floor(self, size: int | str) -> None:
        """Ask for so much memory to be left, from the next reload on."""
        self.change("exporter", host={"memory_available_floor": size})

    def runs(self, worker: str) -> bool:
        """Whether what was started at first still runs."""
        return alive(self.box.started[RUN, worker])

    def close(self) -> None:
        self.box.close()
        self.called.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.close()


@pytest.fixture
def stack(scene: Scene, tmp_path: Path) -> Iterator[Parts]:
    with parts(tmp_path / "stack", scene.box.config) as stack:
        # what runs out after four times the interval of the rules, 5 s, and not of this
        command = stack.command("prometheus")
        short = ["--rules.alert.resend-delay=1s" if "resend" in word else word for word in command]
        assert short != command
        stack._commands["prometheus"] = short
        file = stack.run.path / "alertmanager.yml"
        settings = yaml.safe_load(file.read_text())
        beat = settings["route"]["routes"][0]
        assert "TrainingWatchdog" in beat["matchers"][0]
        beat |= {"group_interval": f"{BEAT_SECONDS}s", "repeat_interval": "1s"}
        file.write_text(yaml.safe_dump(settings))
        stack.start("exporter", "alertmanager", "prometheus", "remediator")
        yield stack


def kinds(stack: Parts) -> list[str]:
    return [event["kind"] for event in stack.journal()]


def silent(stack: Parts) -> bool:
    page = fetch(f"{stack.run.url('remediator')}/metrics")[1]
    return "trainwarden_remediator_alerts_stale 1.0" in page


def silent_calls(scene: Scene) -> int:
    return str(scene.called.calls).count("no alerts arrive")


def test_the_on_call_is_paged_and_the_failsafe_guards_the_memory(
    scene: Scene, stack: Parts
) -> None:
    def held() -> bool:
        shown = 'trainwarden_worker_memory_bytes{worker="%s"} > %d'
        return all(stack.query(shown % one) for one in SIZES.items())

    stack.wait_until(held, LONGEST_SECONDS)
    beaten = "trainwarden_remediator_watchdog_timestamp_seconds"
    page = f"{stack.run.url('remediator')}/metrics"
    stack.wait_until(lambda: f"\n{beaten} " in fetch(page)[1], LONGEST_SECONDS)
    # the first heartbeat may come after the silence has run out; it ends at the next check
    stack.wait_until(lambda: not silent(stack), LONGEST_SECONDS)
    silences, calls = kinds(stack).count("alerts_stale"), silent_calls(scene)

    stack.kill("prometheus")
    stack.wait_until(lambda: kinds(stack).count("alerts_stale") > silences, LONGEST_SECONDS)
    stack.wait_until(lambda: silent(stack), LONGEST_SECONDS)
    stack.wait_until(lambda: silent_calls(scene) > calls, LONGEST_SECONDS)
    # that of itself is no reason to touch anything
    assert all(map(scene.runs, SIZES))

    scene.floor("1024TiB")
    post(f"{stack.run.url('exporter')}/-/reload")
    stack.wait_until(lambda: not scene.runs("large"), LONGEST_SECONDS)
    scene.floor(0)
    post(f"{stack.run.url('exporter')}/-/reload")
    stack.wait_until(lambda: "outcome" in kinds(stack), LONGEST_SECONDS)
    (intent,) = events(stack.journal(), RUN, "intent")
    assert (intent["worker"], intent["alert"]) == ("large", "TrainingLocalBrake")
    (outcome,) = events(stack.journal(), RUN, "outcome")
    assert outcome["facts"]["outcome"] == "healed"
    assert scene.runs("small")
