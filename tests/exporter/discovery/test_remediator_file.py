from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trainwarden_exporter.config_file.loader import Section, parse
from trainwarden_exporter.discovery.host_scan import HostScan, RunFolder
from trainwarden_exporter.discovery.processes import Candidate
from trainwarden_exporter.discovery.proposal import propose
from trainwarden_exporter.discovery.remediator_file import render_remediator
from trainwarden_remediator.config.targets import Target


class Targets(Section):
    targets: tuple[Target, ...]


DATA = Path("/data/run")
TRAINER = Candidate(
    10,
    ("python3", "-u", "train.py", "--name", "a: $HOME"),
    1,
    DATA,
    (DATA / "t.log",),
    user="anna",
)


def targets(*candidates: Candidate) -> tuple[str, tuple[Target, ...]]:
    text = render_remediator(propose(HostScan(candidates, (RunFolder(DATA),))))
    line = text.index("\ntargets:")
    found = parse(text[line:], Path("/etc/tw/remediator.yml"), Targets, environment={})
    return text, found.targets


def test_a_worker_is_a_target_with_its_arguments_folder_log_and_account() -> None:
    _, (target,) = targets(TRAINER)
    assert target.process is not None
    assert target.process.start == TRAINER.arguments
    assert (target.process.cwd, target.process.log) == (DATA, DATA / "t.log")
    assert (target.run, target.worker, target.process.user) == ("data", "a:-HOME", "anna")


def test_a_service_is_restarted_by_systemd() -> None:
    _, (target,) = targets(replace(TRAINER, cgroup="/system.slice/train.service"))
    assert target.systemd is not None
    assert target.systemd.unit == "train.service"


def test_an_unknown_start_is_a_comment() -> None:
    several = (TRAINER, replace(TRAINER, pid=11))
    title = (replace(TRAINER, arguments=("my train: step 3",)),)
    container = (replace(TRAINER, cgroup="/docker/0a"),)
    for candidates, reason in (
        (several, "several processes"),
        (title, "has set its own title"),
        (container, "in a container or job"),
    ):
        text, found = targets(*candidates)
        assert found == ()
        assert reason in text
