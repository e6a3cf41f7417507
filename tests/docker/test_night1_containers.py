"""Night 1 as it was: the start command of a container fails, and its platform starts it again."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from dockerengine import DockerEngine
from loops import FATAL, ask_for_a_restart, refused, remediator
from measuring import LIMITS, Measure
from parts import Parts, parts, write_config

RULE = "TrainingContainerRestartLoop"
SEEN_SECONDS, CALLED_SECONDS = LIMITS[1].seen, LIMITS[1].healed
PERIOD = 17
START_COMMAND = f'echo "Cloning into AReaL..."; sleep 16; echo "{FATAL}" >&2; exit 128'
"""Longer than 10 s: so the engine restarts it at once, each time."""
CALM = ("restarted", "deployed")
"""Runs whose container is restarted once, or replaced once, which is nobody's business."""


@pytest.fixture(scope="module")
def stack(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    folder = tmp_path_factory.mktemp("night1")
    trainer = {"name": "trainer", "match": {"command": f"{folder}/never there"}}
    runs = [
        {"name": name, "containers": [{"name": "pod", "docker": f"{name}-pod"}]}
        for name in ("grpo", *CALM)
    ]
    exporter = {
        "state_folder": "state",
        "docker": {"socket": str(engine.socket)},
        "runs": [{**runs[0], "workers": [trainer]}, *runs[1:]],
    }
    config = write_config(folder / "config", exporter, remediator(folder))
    with parts(folder / "run", config) as stack:
        stack.start("prometheus", "alertmanager", "remediator", "exporter")
        yield stack


def run(engine: DockerEngine, name: str, script: str) -> None:
    plain = ("run", "--detach", "--network=none", "--restart=always")
    engine.docker(*plain, "--name", f"{name}-pod", "shell", "sh", "-c", script)


def test_is_seen_named_and_held_and_the_on_call_is_paged_once(
    engine: DockerEngine, stack: Parts, measured: Measure
) -> None:
    for name in CALM:
        run(engine, name, "sleep 1000")
    run(engine, "grpo", START_COMMAND)
    began = time.time()
    engine.docker("restart", "--time=0", "restarted-pod")
    engine.docker("rm", "--force", "deployed-pod")
    run(engine, "deployed", "sleep 1000")

    stack.wait_until(lambda: stack.firing(RULE), SEEN_SECONDS)
    seen = time.time() - began
    restarts = int(engine.docker("inspect", "--format", "{{.RestartCount}}", "grpo-pod"))
    # the exporter's own restarts make no difference
    stack.kill("exporter")
    stack.start("exporter")
    stack.wait_until(lambda: stack.person.calls_about(RULE), CALLED_SECONDS)
    called = stack.person.calls_about(RULE)[0][0] - began
    ask_for_a_restart(stack)
    stack.wait_until(refused(stack), 20)
    time.sleep(3 * PERIOD)
    measured(1, "a container in a loop: seen", seen, SEEN_SECONDS)
    measured(1, f"held, on-call paged ({restarts} restarts)", called, CALLED_SECONDS)
    assert seen < SEEN_SECONDS
    assert called < CALLED_SECONDS
    assert restarts <= 3
    ((_, call),) = stack.person.calls_about(RULE)
    (alert,) = call["alerts"]
    labels, description = alert["labels"], alert["annotations"]["description"]
    assert (labels["run"], labels["container"], labels["severity"]) == ("grpo", "pod", "critical")
    assert "every 16" in description or "every 17" in description
    assert "exit code 128" in description
    assert FATAL in description
    assert not [event for event in stack.journal() if event["kind"] == "intent"]
    assert [alert["labels"]["run"] for alert in stack.firing(RULE)] == ["grpo"]
    assert {call["groupLabels"]["run"] for _, call in stack.person.calls} == {"grpo"}
    starts = {
        result["metric"]["run"]: int(result["value"][1])
        for result in stack.query("trainwarden_container_recent_starts")
    }
    counted = int(engine.docker("inspect", "--format", "{{.RestartCount}}", "grpo-pod"))
    assert starts["grpo"] in (counted, counted + 1)
    assert [starts[name] for name in CALM] == [2, 2]
