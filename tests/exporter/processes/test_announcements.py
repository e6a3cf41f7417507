"""Which files of `runs.d/` are believed, and what they say about a worker."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from trainwarden_exporter.config import (
    MAX_ANNOUNCED_FOLDERS,
    Config,
    announced_folders,
    with_announced,
)
from trainwarden_exporter.inference.config import AnnouncedServer
from trainwarden_exporter.processes import announcements, typed_commands
from trainwarden_exporter.processes.announcement_files import (
    MAX_ALL_BYTES,
    MAX_BYTES,
    MAX_FILES,
    MAX_NAMES,
    announcement_files,
    read_announcements,
)
from trainwarden_exporter.processes.announcements import AnnouncedRuns, Announcement
from trainwarden_exporter.processes.exit_status import ProcessExit
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity

NOW = 1_800_000_000.0
KEY = WorkerKey("demo", "trainer")
ANNOUNCED = '{"run": "demo", "worker": "other", "pid": 7,'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "runs.d"
    found.mkdir()
    return found


def announce(folder: Path, name: str = "demo@trainer", **content: Any) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"run": "demo", "worker": "trainer", "pid": 7, **content}))
    path.chmod(0o600)
    return path


def problems(folder: Path) -> list[str]:
    return [str(one) for one in read_announcements(folder, NOW).problems]


@pytest.mark.parametrize(
    ("state", "status", "failure"),
    [
        ("failed", 9, "SIGKILL"),
        ("failed", 40, "signal 40"),
        ("failed", 3 << 8, "exit status 3"),
        ("running", 9, ""),
        ("stopped", 9, ""),
    ],
)
def test_a_failure_is_named(state: str, status: int, failure: str) -> None:
    content = {"run": "demo", "worker": "trainer", "pid": 7, "exits": [[7, 1, status]]}
    assert Announcement.model_validate({**content, "state": state}).failure == failure


def test_without_a_folder_no_run_is_announced(tmp_path: Path) -> None:
    assert read_announcements(tmp_path / "missing", NOW) == AnnouncedRuns()
    assert read_announcements(None, NOW) == AnnouncedRuns()


def test_an_announced_worker_is_added_with_its_log_and_limits(folder: Path) -> None:
    log = folder.parent / "logs" / "demo.log"
    announce(folder, log=str(log), role="trainer", memory_limit="2GiB", state="running")
    config, wrong = with_announced(Config(), read_announcements(folder, NOW))
    (run,) = config.runs
    (worker,) = run.workers
    assert wrong == ()
    assert (run.name, worker.name, worker.role) == ("demo", "trainer", "trainer")
    assert worker.match.pid_file == folder / "demo@trainer.pid"
    assert worker.match.user == str(os.getuid())
    assert worker.memory_limit == 2 << 30
    assert worker.finishes
    assert run.logs[0].files == (str(log),)


@pytest.mark.parametrize("saves", [True, False])
def test_the_disks_of_the_log_the_working_folder_and_the_checkpoints_are_watched(
    folder: Path, *, saves: bool
) -> None:
    log, works = folder.parent / "logs" / "demo.log", folder.parent / "work"
    out = [Path("/mnt/out [a]")] * saves
    announce(folder, log=str(log), cwd=str(works), checkpoints=str(out[0]) if saves else None)
    config, _ = with_announced(Config(), read_announcements(folder, NOW))
    assert list(announced_folders(config)) == [log.parent, works, *out]


def test_of_a_sweep_only_the_newest_folders_are_watched(folder: Path) -> None:
    for number in range(MAX_ANNOUNCED_FOLDERS + 3):
        name = f"trial-{number}"
        announce(folder, name, run=name, log="/l/a", cwd=f"/w/{number}", announced_at=NOW + number)
    config, _ = with_announced(Config(), read_announcements(folder, NOW))
    works = [path for path in announced_folders(config) if path != Path("/l")]
    assert works == [Path(f"/w/{number}") for number in range(MAX_ANNOUNCED_FOLDERS + 2, 2, -1)]


def test_workers_of_one_run_belong_together_and_the_file_takes_precedence(folder: Path) -> None:
    announce(folder)
    ready = "http://127.0.0.1:8000/health"
    announce(folder, "demo@vllm", worker="vllm", role="inference", ready=ready)
    configured = Config.model_validate(
        {"runs": [{"name": "demo", "workers": [{"name": "trainer", "match": {"command": "own"}}]}]}
    )
    config, _ = with_announced(configured, read_announcements(folder, NOW))
    (run,) = config.runs
    assert [worker.name for worker in run.workers] == ["trainer", "vllm"]
    assert run.workers[0].match.command is not None
    assert run.inference == (AnnouncedServer(name="vllm", worker="vllm", ready=ready),)


def test_a_configured_run_keeps_its_path_and_framework(folder: Path, tmp_path: Path) -> None:
    announce(folder, path="/elsewhere", framework="verl", checkpoints="/elsewhere/saves")
    run = {"name": "demo", "framework": "trl", "path": str(tmp_path)}
    config, _ = with_announced(
        Config.model_validate({"runs": [run]}), read_announcements(folder, NOW)
    )
    (found,) = config.runs
    assert (found.path, found.framework) == (tmp_path, "trl")
    assert [worker.name for worker in found.workers] == ["trainer"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second account")
def test_a_run_is_added_to_by_its_own_account_alone(folder: Path) -> None:
    os.chown(folder, 65533, 65533)
    path = announce(folder, "a@other", worker="other", memory_limit=1)
    os.chown(path, 65533, 65533)
    message = "the run belongs to another account"
    config, problems = with_announced(
        Config.model_validate({"runs": [{"name": "demo"}]}), read_announcements(folder, NOW)
    )
    assert [str(one) for one in problems] == [f"{path}: {message}"]
    assert not config.runs[0].workers
    config, problems = with_announced(
        Config.model_validate({"runs": [{"name": "demo", "user": "65533"}]}),
        read_announcements(folder, NOW),
    )
    assert not problems
    assert [worker.name for worker in config.runs[0].workers] == ["other"]
    announce(folder)
    config, problems = with_announced(Config(), read_announcements(folder, NOW))
    assert [str(one) for one in problems] == [f"{path}: {message}"]
    assert [worker.name for worker in config.runs[0].workers] == ["trainer"]


@pytest.mark.parametrize(
    ("state", "ended_ago", "shown"),
    [
        ("running", None, True),
        ("restarting", None, True),
        ("finished", 60.0, True),
        ("failed", 60.0, True),
        ("failed", 90_000.0, False),
        ("stopped", 1.0, False),
        ("starting", None, False),
    ],
)
def test_a_run_that_was_stopped_or_ended_long_ago_is_not_shown(
    folder: Path, state: str, ended_ago: float | None, shown: bool
) -> None:
    announce(folder, state=state, ended_at=None if ended_ago is None else NOW - ended_ago)
    read = read_announcements(folder, NOW)
    assert (KEY in read.workers) == shown
    assert (KEY in read.stopped) == (state == "stopped")
    assert read.ended_with_run == frozenset()
    announce(folder, state=state, ended_with_run=True)
    assert read_announcements(folder, NOW).ended_with_run == read.stopped
    announce(folder, state=state, dismissed="failed")
    assert read_announcements(folder, NOW).dismissed == dict.fromkeys(read.stopped, "failed")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"run": "demo",\n nonsense}', "bad.json:2: not JSON: "),
        ("[]", "bad.json: "),
        ('{"run": "demo",\n "worker": "a b",\n "pid": 1}', "bad.json:2: worker: "),
        ('{"run": "demo", "worker": "a"}', "bad.json: pid: "),
        ('{"run": "demo", "worker": "a", "pid": -1}', "bad.json:1: pid: "),
        ("x" * (MAX_BYTES + 1), "bad.json: too large"),
        ("\ud800", "bad.json:1: not JSON: "),
        ("[" * 100_000, "bad.json: not an announcement: nested too deeply"),
        (ANNOUNCED + ' "path": "/data/\\ud800"}', "bad.json:1: path: "),
        (ANNOUNCED + ' "log": "/data/\\u0000"}', "bad.json:1: log: "),
        (ANNOUNCED + ' "exits": [[1, 2, 1000000000000]]}', "bad.json:1: exits.0.2: "),
        (ANNOUNCED + ' "role": "\\u001b[2J"}', "bad.json:1: role: "),
        (ANNOUNCED + ' "exits": [[1, 2, 65535]]}', "bad.json:1: exits.0.2: "),
        (ANNOUNCED + ' "exits": [[1, 2, 127]]}', "bad.json:1: exits.0.2: "),
        (ANNOUNCED + ' "own_restarts": [[1.5, 127]]}', "bad.json:1: own_restarts.0.1: "),
    ],
)
def test_a_bad_file_is_one_line_with_its_path_and_the_others_count(
    folder: Path, content: str, problem: str
) -> None:
    announce(folder)
    bad = folder / "bad.json"
    bad.write_bytes(content.encode("utf-8", "surrogatepass"))
    bad.chmod(0o600)
    (found,) = problems(folder)
    assert found.startswith(f"{folder}/{problem}")
    assert "\n" not in found
    assert list(read_announcements(folder, NOW).workers) == [KEY]


def test_a_file_that_others_can_write_is_not_believed(folder: Path) -> None:
    announce(folder).chmod(0o666)
    assert problems(folder) == [f"{folder}/demo@trainer.json: can be written by other accounts"]


def test_what_is_no_regular_file_is_not_opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(folder / "pipe.json")
    (folder / "folder.json").mkdir()
    (folder / "device.json").symlink_to("/dev/zero")
    monkeypatch.chdir(folder)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket.json")
    (folder / "gone.json").symlink_to("/no/such/file")
    (folder / ".new.json").write_text("{")
    kinds = ("device", "folder", "pipe", "socket")
    assert problems(folder) == [f"{folder}/{kind}.json: not a regular file" for kind in kinds]


@pytest.mark.parametrize("suffix", [".json", ".txt"])
def test_of_a_folder_with_many_files_a_limited_number_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    taken = 0

    class Entries:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def __iter__(self) -> Iterator[SimpleNamespace]:
            nonlocal taken
            for taken in range(1, 1_000_000):
                yield SimpleNamespace(name=f"{taken}{suffix}")

    # of this folder alone: other threads of the process read folders too
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: Entries() if path == folder else scandir(path))
    files, has_more = announcement_files(folder)
    assert (taken, has_more) == (MAX_NAMES + 1, True)
    assert len(files) == (MAX_FILES if suffix == ".json" else 0)
    assert problems(folder) == [f"{folder}: more than 2000 files: the rest ignored"]


@pytest.mark.parametrize("is_valid", [True, False])
def test_of_large_files_a_limited_number_is_read(folder: Path, *, is_valid: bool) -> None:
    limit = MAX_ALL_BYTES // MAX_BYTES
    for number in range(limit + 3):
        path = announce(folder, f"{number:03}", worker=f"w{number:03}", argv=["x" * 250_000])
        path.write_bytes((b"" if is_valid else b"{") + path.read_bytes().ljust(MAX_BYTES))
        os.truncate(path, MAX_BYTES)
    found = problems(folder)
    assert found[-1] == f"{folder}: more than 16 MiB: the rest ignored"
    assert len(found) == 1 + (0 if is_valid else limit)
    assert len(read_announcements(folder, NOW).workers) == (limit if is_valid else 0)


def test_two_files_for_one_worker_are_a_problem(folder: Path) -> None:
    announce(folder, "a")
    announce(folder, "b")
    assert problems(folder) == [f"{folder}/b.json: another file announces demo/trainer"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second account")
def test_another_accounts_file_names_no_log_outside_its_folder(folder: Path) -> None:
    path = announce(folder, log="/etc/shadow")
    os.chown(path, 65533, 65533)
    assert problems(folder) == [f"{path}: belongs to another account than its folder"]
    os.chown(folder, 65533, 65533)
    assert problems(folder) == [f"{path}: names a file outside {folder.parent}"]
    path = announce(folder, log=str(folder.parent / "logs" / "demo.log"))
    os.chown(path, 65533, 65533)
    found = read_announcements(folder, NOW)
    assert (found.problems, found.workers[KEY].uid) == ((), 65533)


@pytest.mark.parametrize(
    ("content", "command"),
    [
        ({"options": ["--restart", "never"]}, "--restart never -- python demo.py"),
        ({"restart": "on-request"}, "--detach -- python demo.py"),
        ({"restart": "on-request", "options": ["--detach"]}, "--detach -- python demo.py"),
        (
            {"options": ["--restart", "never", "--detach"]},
            "--restart never --detach -- python demo.py",
        ),
        ({"argv": ["a b"], "options": ["--age-limit=1h"]}, "--age-limit=1h -- 'a b'"),
        ({"argv": ["python", "--token=abcdefgh12345"]}, "-- python --token=[redacted]"),
    ],
)
def test_the_command_that_starts_it_again_is_that_which_began_it(
    content: dict[str, Any], command: str
) -> None:
    every = {"run": "demo", "worker": "t", "pid": 7, "argv": ["python", "demo.py"], "options": []}
    found = Announcement.model_validate({**every, **content}).start_command
    assert found == f"trainwarden run {command}"
    explained = "(in the background, so that a failure is restarted" in typed_commands.as_typed(
        found
    )
    assert explained == ("--detach" in command and "never" not in command)


@pytest.mark.parametrize(
    ("state", "others", "ends"),
    [
        ("failed", (), ""),
        ("running", (), "trainwarden stop demo; "),
        ("restarting", ("server",), "trainwarden stop demo --worker trainer; "),
    ],
)
def test_what_starts_a_command_again_ends_it_first_if_it_goes_on(
    folder: Path, state: str, others: tuple[str, ...], ends: str
) -> None:
    every: dict[str, Any] = {"argv": ["python", "demo.py"], "options": [], "cwd": "/srv"}
    announce(folder, state=state, **every)
    for other in others:
        announce(folder, name=f"demo@{other}", worker=other)
    found = read_announcements(folder, NOW).start_command(KEY)
    assert found == f"{ends}cd /srv && trainwarden run -- python demo.py"


@pytest.mark.parametrize(
    "content",
    [
        {"argv": ["python", "\udcff.py"]},
        {"argv": ["python", "a\x1b[2Jb"]},
        {"argv": ["python", "-c", "import this\nexit(1)"]},
        {"argv": ["python", "x" * 100_000]},
        {"argv": ["python", "a.py"], "cwd": "/srv/\udcff"},
        {"argv": ["python", "a.py"], "options": ["--checkpoints", "a\nb"]},
        {"argv": ["python", "a.py"], "options": None},
        {"argv": []},
    ],
)
def test_a_command_that_cannot_be_shown_is_not_to_be_typed(content: dict[str, Any]) -> None:
    """A page, a terminal and the journal would fail at it, or obey it."""
    every = {"run": "r", "worker": "t", "pid": 7, "options": []}
    found = Announcement.model_validate({**every, **content})
    assert found.start_command == ""


def test_the_exit_of_an_announced_process_is_known() -> None:
    one = Announcement(run="demo", worker="t", pid=9, start_ticks=90, exits=((7, 70, 256),))
    assert one.exit_of(Identity(7, 70)) == ProcessExit(256, reaped=True)
    assert one.exit_of(Identity(9, 90)) == ProcessExit(None, reaped=False)  # it follows
    assert one.exit_of(Identity(9, 91)) is None
    ended = one.model_copy(update={"state": "failed"})
    assert ended.exit_of(Identity(9, 90)) is None


def test_a_worker_that_is_no_valid_configuration_is_left_out(folder: Path) -> None:
    path = announce(folder, framework="no-such")
    config, (problem,) = with_announced(Config(), read_announcements(folder, NOW))
    assert config == Config()
    assert str(problem).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("ready", "message"),
    [
        ("http://[", "Invalid IPv6 URL"),
        ("http://127.0.0.1:99999", "not a URL: Port out of range 0-65535"),
        ("http://user:pw@127.0.0.1/", "no user and password allowed"),
        ("http://gpu2:8000/health", "not an address of this host"),
    ],
)
def test_a_server_with_an_unusable_address_is_watched_without_it(
    folder: Path, ready: str, message: str
) -> None:
    path = announce(folder, role="inference", ready=ready)
    config, (problem,) = with_announced(Config(), read_announcements(folder, NOW))
    assert str(problem).startswith(f"{path}: ready: {message}")
    (run,) = config.runs
    assert [worker.name for worker in run.workers] == ["trainer"]
    assert run.inference == (AnnouncedServer(name="trainer", worker="trainer"),)


def test_a_run_remains_while_its_file_cannot_be_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = announce(folder)
    before = read_announcements(folder, NOW)

    def fail(_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("trainwarden_exporter.processes.announcement_files.open_regular", fail)
    after = read_announcements(folder, NOW, before)
    assert after.workers == before.workers
    assert [str(one) for one in after.problems] == [f"{path}: Input/output error"]
    monkeypatch.undo()
    path.unlink()
    assert read_announcements(folder, NOW, after) == AnnouncedRuns()


def test_runs_remain_while_their_folder_cannot_be_listed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce(folder)
    before = read_announcements(folder, NOW)

    def fail(_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "scandir", fail)
    after = read_announcements(folder, NOW, before)
    assert after.workers == before.workers
    assert [str(one) for one in after.problems] == [f"{folder}: Too many open files"]
    assert read_announcements(folder.parent, NOW, before).workers == {}


def test_runs_that_are_over_do_not_use_up_the_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwarden_exporter.processes.announcement_files.MAX_RUNS", 2)
    announce(folder, "a", worker="a", state="stopped")
    for name in "bc":
        announce(folder, name, worker=name, state="finished", ended_at=NOW - 60)
    announce(folder, "d")
    assert KEY in read_announcements(folder, NOW).workers
    assert problems(folder) == [f"{folder}: more than 2 runs: the rest ignored"]


def test_a_count_that_begins_in_the_future_is_ignored(folder: Path) -> None:
    announce(folder, counted_since=NOW)
    announced = read_announcements(folder, NOW)
    since = [announced.counted_since(KEY, now) for now in (NOW, NOW - 60)]
    assert since == [NOW - announcements.CLOCK_ERROR_SECONDS, 0.0]
    assert announced.counted_since(WorkerKey("demo", "other"), NOW) == 0.0
