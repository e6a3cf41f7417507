"""What `discover` proposes for the demo run is enough to watch all of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from box import value
from ports import free_port
from running import SCRIPTS, Up, fetch, up

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the stack watches processes through /proc"
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("discover") / "run", MODE="observe") as running:
        running.wait_until_up()
        yield running


@pytest.fixture(scope="module")
def proposed(demo: Up, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The proposal, once there is a checkpoint to be found."""
    demo.wait_until(lambda: value(demo, "checkpoint_complete", run="demo"), 180)
    file = tmp_path_factory.mktemp("proposed") / "exporter.yml"
    command = (SCRIPTS / "trainwarden-exporter", "discover", demo.folder)
    file.write_text(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return file


def test_the_proposal_is_accepted(proposed: Path) -> None:
    command = (SCRIPTS / "trainwarden-exporter", "check", proposed)
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert "ok (1 run, " in result.stdout


def test_it_names_every_part_of_the_run(proposed: Path) -> None:
    (run,) = yaml.safe_load(proposed.read_text())["runs"]
    names = {key: {one["name"] for one in run[key]} for key in ("workers", "checkpoints")}
    assert names["workers"] >= {"trainer", "inference", "rollout-0", "rollout-1"}
    assert names["checkpoints"] == {"checkpoints"}
    assert {one["name"] for one in run["rollouts"]} == {"rollout-0", "rollout-1"}
    assert {one["name"] for one in run["logs"]} >= {"trainer", "inference"}
    (server,) = run["inference"]
    assert (server["engine"], server["worker"]) == ("vllm", "inference")


def test_an_exporter_with_it_watches_all_of_the_run(demo: Up, proposed: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    command = (SCRIPTS / "trainwarden-exporter", "run", "--web.listen-address", address)
    log = proposed.with_suffix(".log")
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--config.file", proposed], stdout=output, stderr=output
        )
    name = yaml.safe_load(proposed.read_text())["runs"][0]["name"]
    wanted = (
        f'trainwarden_worker_processes{{role="trainer",run="{name}",worker="trainer"}} 1.0',
        f'trainwarden_worker_processes{{role="rollout",run="{name}",worker="rollout-1"}} 1.0',
        f'trainwarden_checkpoint_step{{checkpoint="checkpoints",run="{name}"}} ',
        f'trainwarden_rollout_step{{rollout="rollout-0",run="{name}"}} ',
        f'trainwarden_training_step{{run="{name}"}} ',
        f'trainwarden_inference_up{{engine="vllm",run="{name}",server="inference"}} 1.0',
    )
    page = ""

    def all_seen() -> bool:
        nonlocal page
        try:
            page = fetch(f"http://{address}/metrics")[1]
        except OSError:
            return False
        return all(line in page for line in wanted)

    try:
        demo.wait_until(all_seen, 180)
    except pytest.fail.Exception:
        pytest.fail(
            f"never seen: {[line for line in wanted if line not in page]}\n{log.read_text()}"
        )
    finally:
        process.terminate()
        process.wait(60)
