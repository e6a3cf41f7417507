from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwarden_exporter.frameworks import path_resolution
from trainwarden_exporter.frameworks.path_resolution import find_instances, resolve

CHECKPOINTS = "checkpoints/{user}/{trial}/default"
LOGS = "logs/{user}/{trial}/*.log"


def folder(path: Path, changed: float) -> Path:
    path.mkdir(parents=True)
    os.utime(path, (changed, changed))
    return path


def file(path: Path, changed: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    os.utime(path, (changed, changed))
    return path


def test_matches_are_sorted_newest_first(tmp_path: Path) -> None:
    old = file(tmp_path / "logs/a.log", 1_000)
    new = file(tmp_path / "logs/b.log", 2_000)
    (tmp_path / "logs/c.txt").touch()

    found = resolve(tmp_path, ("logs/*.log", "logs"), {})

    assert found.files("logs/*.log") == (new, old)
    assert found.folders("logs") == (tmp_path / "logs",)
    assert found.folders("logs/*.log") == found.files("logs") == ()


def test_before_the_first_write_the_instance_is_empty(tmp_path: Path) -> None:
    found = resolve(tmp_path / "missing", (CHECKPOINTS, "{run?}/logs"), {"trial": "t"})
    assert found.folders(CHECKPOINTS) == ()
    assert found.names == {"trial": "t"}
    assert not found.truncated


def test_the_newest_instance_is_chosen_over_all_templates(tmp_path: Path) -> None:
    """The new trial has a log and no checkpoint yet: it does not get those of the old trial."""
    folder(tmp_path / "checkpoints/root/trial0/default", 1_000)
    file(tmp_path / "logs/root/trial0/main.log", 1_500)
    log = file(tmp_path / "logs/root/trial1/main.log", 9_000)

    found = resolve(tmp_path, (CHECKPOINTS, LOGS), {})

    assert found.names == {"user": "root", "trial": "trial1"}
    assert found.files(LOGS) == (log,)
    assert found.folders(CHECKPOINTS) == ()
    assert found.other_recent_runs == ()


def test_a_variable_selects_an_instance(tmp_path: Path) -> None:
    wanted = folder(tmp_path / "checkpoints/root/trial0/default", 1_000)
    folder(tmp_path / "checkpoints/root/trial1/default", 2_000)
    found = resolve(tmp_path, (CHECKPOINTS,), {"trial": "trial0"})
    assert found.folders(CHECKPOINTS) == (wanted,)


def test_a_folder_that_fits_either_of_two_optional_names_is_one_run(tmp_path: Path) -> None:
    templates = ("{logger?}/{version?}/checkpoints", "{logger?}/{version?}/metrics.csv")
    folder(tmp_path / "version_0/checkpoints", 10_000)
    file(tmp_path / "version_0/metrics.csv", 10_000)
    found = resolve(tmp_path, templates, {})
    assert found.other_recent_runs == ()
    assert len(found.files(templates[1])) == 1


def test_others_that_live_too_are_reported(tmp_path: Path) -> None:
    file(tmp_path / "logs/root/trial0/main.log", 10_000)
    file(tmp_path / "logs/root/trial1/main.log", 9_990)
    file(tmp_path / "logs/root/trial2/main.log", 1_000)
    file(tmp_path / "shared.log", 10_000)

    found = resolve(tmp_path, (LOGS, "shared.log"), {})

    assert found.names == {"user": "root", "trial": "trial0"}
    assert found.other_recent_runs == ({"user": "root", "trial": "trial1"},)


def test_a_match_without_names_belongs_to_every_instance(tmp_path: Path) -> None:
    shared = file(tmp_path / "wandb/output.log", 5_000)
    for trial in ("trial0", "trial1"):
        file(tmp_path / f"logs/root/{trial}/main.log", 1_000)
    both = find_instances(tmp_path, (LOGS, "wandb/output.log"), {})
    assert [one.names["trial"] for one in both] == ["trial0", "trial1"]
    assert all(one.files("wandb/output.log") == (shared,) for one in both)


@pytest.mark.parametrize("start", [".", ".."])
def test_with_an_optional_folder_the_path_is_the_run_or_its_parent(
    tmp_path: Path, start: str
) -> None:
    run = tmp_path / "outputs" / "wordle"
    rollouts = folder(run / "rollouts", 1_000)
    folder(run / "run_default" / "rollouts", 2_000)
    path = Path(os.path.normpath(run / start))
    found = resolve(path, ("{run? not run_default}/rollouts",), {})
    assert found.folders("{run? not run_default}/rollouts") == (rollouts,)


def test_required_content_distinguishes_a_folder_from_others(tmp_path: Path) -> None:
    template = "{project?}/{experiment? not global_step_*}/{has global_step_*}"
    checkpoints = folder(tmp_path / "math/grpo", 1_000)
    folder(checkpoints / "global_step_10" / "actor", 5_000)
    folder(tmp_path / "math/notes", 9_000)
    for path in (tmp_path, tmp_path / "math", checkpoints):
        assert resolve(path, (template,), {}).folders(template) == (checkpoints,)


def test_required_content_may_be_one_folder_further(tmp_path: Path) -> None:
    template = "rollouts/{has step_*/rank_*}"
    file(tmp_path / "rollouts/step_1/train/traces.jsonl", 1_000)
    assert resolve(tmp_path, (template,), {}).folders(template) == ()
    file(tmp_path / "rollouts/step_2/rank_0.bin", 1_000)
    assert resolve(tmp_path, (template,), {}).folders(template) == (tmp_path / "rollouts",)


def test_the_expected_path_is_known_before_it_exists(tmp_path: Path) -> None:
    template = "{run?}/rollouts/{has step_*}"
    found = resolve(tmp_path, (template, CHECKPOINTS), {"trial": "t"})
    assert found.expected_path(tmp_path, template) == tmp_path / "rollouts"
    assert found.expected_path(tmp_path, CHECKPOINTS) is None


def test_a_template_may_leave_the_folder_of_the_run(tmp_path: Path) -> None:
    log = file(tmp_path / "logs/infra-1.log", 1_000)
    template = f"{tmp_path}/logs/infra-*.log"
    assert resolve(tmp_path / "elsewhere", (template,), {}).files(template) == (log,)


def test_links_are_followed_and_broken_links_ignored(tmp_path: Path) -> None:
    file(tmp_path / "logs/attempt_2/trainer.log", 1_000)
    (tmp_path / "logs/latest").symlink_to("attempt_2")
    (tmp_path / "logs/older").symlink_to("attempt_1")
    (tmp_path / "logs/loop").symlink_to("loop")
    found = resolve(tmp_path, ("logs/latest/*.log", "logs/older/*.log", "logs/loop/*.log"), {})
    assert found.files("logs/latest/*.log") == (tmp_path / "logs/latest/trainer.log",)
    assert found.files("logs/older/*.log") == found.files("logs/loop/*.log") == ()


def test_a_glob_over_too_much_is_cut_and_that_is_reported(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.log").touch()
    (truncated,) = find_instances(tmp_path, ("*.log",), {}, max_names=7)
    assert len(truncated.files("*.log")) == 7
    assert truncated.truncated
    (is_complete,) = find_instances(tmp_path, ("*.log",), {}, max_names=20)
    assert not is_complete.truncated


def test_a_glob_follows_a_limited_number_of_matches(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"run{number}").mkdir()
    literal = folder(tmp_path / "ckpt", 1_000)
    (found,) = find_instances(tmp_path, ("*/a", "*/b", "ckpt"), {}, max_names=30)
    assert found.truncated
    assert found.folders("ckpt") == (literal,)
    assert not find_instances(tmp_path, ("*/a", "ckpt"), {}, max_names=30)[0].truncated


def test_of_very_many_paths_the_last_changed_ones_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_resolution, "MAX_MATCHES", 3)
    logs = [file(tmp_path / f"{number}.log", 1_000 + number) for number in range(9)]
    assert resolve(tmp_path, ("*.log",), {}).files("*.log") == tuple(reversed(logs[-3:]))


def test_a_file_is_not_searched_as_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a data set in the path are listed, but cause no other system call."""
    for number in range(5):
        (tmp_path / f"sample_{number}").touch()
    run = folder(tmp_path / "run/checkpoints", 1_000)
    requested: list[str] = []
    real = os.stat

    def counting(path: str, **how: bool) -> os.stat_result:
        requested.append(path)
        return real(path, **how)

    with monkeypatch.context() as patched:
        patched.setattr("os.stat", counting)
        found = resolve(tmp_path, ("{run?}/checkpoints",), {})
    assert found.folders("{run?}/checkpoints") == (run,)
    assert not any("sample" in path for path in requested)


def test_a_folder_may_be_a_link(tmp_path: Path) -> None:
    folder(tmp_path / "store/run7/checkpoints", 1_000)
    path = tmp_path / "runs"
    path.mkdir()
    (path / "latest").symlink_to("../store/run7")
    (path / "log.txt").symlink_to("/dev/null")
    found = resolve(path, ("{run?}/checkpoints",), {})
    assert found.folders("{run?}/checkpoints") == (path / "latest/checkpoints",)


class Scandir:
    """Replaces os.scandir: fails for one folder, and records the requested folders."""

    def __init__(self, failing: Path, number: int) -> None:
        self._failing = str(failing)
        self._number = number
        self._real = os.scandir
        self.requested: list[str] = []

    def __call__(self, path: str) -> Iterator[os.DirEntry[str]]:
        self.requested.append(path)
        if path == self._failing:
            raise OSError(self._number, os.strerror(self._number), path)
        return self._real(path)


def test_a_folder_that_may_not_be_read_is_reported_and_the_others_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(tmp_path / "private", 1_000)
    log = file(tmp_path / "open/main.log", 1_000)
    monkeypatch.setattr("os.scandir", Scandir(tmp_path / "private", errno.EACCES))
    found = resolve(tmp_path, ("{run}/*.log",), {})
    assert found.files("{run}/*.log") == (log,)
    assert found.unreadable == (tmp_path / "private",)


def test_a_mount_that_fails_is_an_error_and_not_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.scandir", Scandir(tmp_path, errno.ESTALE))
    with pytest.raises(OSError, match="Stale"):
        resolve(tmp_path, ("*.log",), {})


def test_each_folder_is_read_once_for_all_templates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file(tmp_path / "run/a.log", 1_000)
    scandir = Scandir(tmp_path / "none", errno.EIO)
    monkeypatch.setattr("os.scandir", scandir)
    resolve(tmp_path, ("{run}/*.log", "{run}/*.txt", "{run}/{has a*}"), {})
    assert sorted(scandir.requested) == [str(tmp_path), str(tmp_path / "run")]


def test_an_invalid_template_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="brace"):
        resolve(tmp_path, ("{run",), {})
