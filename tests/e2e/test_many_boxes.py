"""A box that nobody reaches from outside: it sends what it sees, and pulls what it is to heal.

The files of deploy/many, on loopback: without TLS and passwords, and with one centre, not two.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import leaky_worker
import ports
import rendering
import stack
from box import Box, Part, Run, a_box, events
from parts import Parts, parts
from ruleset import RULES
from write_alertmanager import for_boxes

MANY = stack.PROJECT / "deploy" / "many"
NAME = "box-3"
HERE = {
    "prometheus-a:9090": f"{ports.LOOPBACK}:9090",
    "alertmanager-a:9093": f"{ports.LOOPBACK}:9093",
    "https:": "http:",
}
REQUEST = 500
"""Samples that Prometheus puts into one request, by default."""
SEEN_SECONDS = 120
HEALED_SECONDS = 400

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the stack watches processes through /proc"
)


def a_run(folder: Path) -> Run:
    worker = Part(
        "rollout-0",
        "worker",
        (sys.executable, "-S", leaky_worker.__file__, "--of", folder, "--name", "rollout-0"),
        rf"leaky_worker\.py --of {re.escape(str(folder))} --name rollout-0$",
    )
    return Run("grpo", [worker], {"path": str(folder)})


def shipped(name: str, chosen: Mapping[str, int]) -> dict[str, Any]:
    """A file of deploy/many as it stands, but for what leads to other machines."""
    text = (MANY / name).read_text(encoding="utf-8")
    for there, here in HERE.items():
        text = text.replace(there, here)
    tree = without_secrets(rendering.with_ports(yaml.safe_load(text), chosen))
    assert isinstance(tree, dict)
    return tree


def without_secrets(tree: Any) -> Any:
    if isinstance(tree, dict):
        kept = tree.keys() - {"scheme", "tls_config", "basic_auth"}
        return {key: without_secrets(one) for key, one in tree.items() if key in kept}
    if isinstance(tree, list):
        return [without_secrets(one) for one in tree if not is_second_of_a_pair(one)]
    return tree


def is_second_of_a_pair(tree: Any) -> bool:
    place = tree.get("url") if isinstance(tree, dict) else tree
    return isinstance(place, str) and "-b:" in place


def make_centre(running: Parts, folder: Path) -> None:
    """What Prometheus and Alertmanager start with; no remediator is known to either."""
    tree = rendering.with_absolute_paths(shipped("center/prometheus.yml", running.run.ports), RULES)
    for job in tree["scrape_configs"]:
        if "file_sd_configs" in job:
            job["file_sd_configs"] = [{"files": [f"{folder}/boxes/*.yml"]}]  # none is reached
    (folder / "prometheus.yml").write_text(yaml.safe_dump(tree))
    file = folder / "alertmanager.yml"
    file.write_text(yaml.safe_dump(for_boxes(yaml.safe_load(file.read_text()), {})))
    running._commands["prometheus"] = [
        *running._commands["prometheus"],
        "--web.enable-remote-write-receiver",
    ]


@contextmanager
def an_agent(running: Parts, folder: Path) -> Iterator[None]:
    """The Prometheus of the host, which sends."""
    program = stack.find_binaries().prometheus
    flag = "--agent" if stack.version(program) >= (3, 0) else "--enable-feature=agent"
    file = folder / "agent.yml"
    file.write_text(yaml.safe_dump(shipped("box/prometheus.yml", running.run.ports)))
    with running.run.log("agent").open("wb") as log:
        child = subprocess.Popen(
            [
                *(program, flag, f"--config.file={file}"),
                f"--storage.agent.path={folder / 'data/agent'}",
                f"--web.listen-address={ports.LOOPBACK}:0",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        child.terminate()
        child.wait(30)


def pull(box: Box) -> None:
    """Let the remediator of the host poll for the host's own alerts only."""
    file = box.config / "remediator.yml"
    settings = yaml.safe_load(file.read_text())
    del settings["token_file"]
    asked = yaml.safe_load((MANY / "box" / "remediator.yml").read_text())["alertmanager"]["pull"]
    settings["alertmanager"]["pull"] = asked
    file.write_text(yaml.safe_dump(settings))


def make_much_to_tell(box: Box) -> None:
    """Let the exporter have more samples than Prometheus sends in one request by default."""
    file = box.config / "exporter.yml"
    settings = yaml.safe_load(file.read_text())
    idle = [
        {"name": f"idle-{number}", "match": {"command": f" idle-{number}$"}, "expected": 0}
        for number in range(2 * REQUEST // 5)
    ]
    settings["runs"].append({"name": "others", "workers": idle})
    file.write_text(yaml.safe_dump(settings))


def test_a_worker_of_a_box_that_nobody_reaches_is_missed_at_the_centre_and_started_there(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "up"
    runs = tmp_path / "runs"
    runs.mkdir()
    with a_box(tmp_path, [a_run(runs)]) as box:
        pull(box)
        make_much_to_tell(box)
        with parts(folder, box.config) as running:
            make_centre(running, folder)
            running.start("exporter", "alertmanager", "prometheus", "remediator")
            with an_agent(running, folder):
                running.wait_until(lambda: seen_by_the_centre(running), SEEN_SECONDS)
                exporter = f'job="trainwarden-exporter",instance="{NAME}"'
                assert running.query(f"scrape_samples_scraped{{{exporter}}} > {2 * REQUEST}")
                box.kill("grpo", "rollout-0")
                running.wait_until(lambda: running.firing("TrainingWorkerGone"), SEEN_SECONDS)
                (alert,) = running.firing("TrainingWorkerGone")
                assert alert["labels"]["instance"] == NAME
                running.wait_until(lambda: outcomes(running), HEALED_SECONDS)
    assert outcomes(running) == ["healed"]


def seen_by_the_centre(running: Parts) -> bool:
    """Whether it has samples of both programs of the host, and of the worker."""
    ups = running.query(f'up{{job=~"trainwarden-.*",instance="{NAME}"}} == 1')
    worker = running.query(f'trainwarden_worker_processes{{instance="{NAME}"}} == 1')
    return len(ups) == 2 and len(worker) == 1


def outcomes(running: Parts) -> list[str]:
    journaled = events(running.journal(), "grpo", "outcome")
    return [one["facts"]["outcome"] for one in journaled]
