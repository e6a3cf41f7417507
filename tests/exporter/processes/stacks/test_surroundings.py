"""What is around a process, by a folder in place of /proc."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_exporter.processes.stacks import open_files
from trainwarden_exporter.processes.stacks.awaited_files import find_awaited_files
from trainwarden_exporter.processes.stacks.far_ends import (
    UNKNOWN,
    find_file,
    find_pipe_ends,
    find_servers,
    leads_outside,
)
from trainwarden_exporter.processes.stacks.model import (
    Activity,
    FarEnd,
    Finding,
    Frame,
    KernelState,
    Member,
    Stacks,
    ThreadStack,
)
from trainwarden_exporter.processes.stacks.open_files import OpenFiles
from trainwarden_exporter.processes.stacks.py_spy import MAX_THREADS
from trainwarden_exporter.processes.stacks.surroundings import look_around, stands_for_ever
from trainwarden_exporter.processes.unix_sockets import KernelSocket

MEMBER = Member(WorkerKey("night", "trainer"), "trainer", Identity(5, 1), 1, is_trainer=True)


@pytest.mark.parametrize(("device", "says"), [("/dev/nvidia0", True), ("/dev/null", False)])
def test_a_process_that_spins_may_wait_for_a_gpu_that_it_has_open(
    tmp_path: Path, device: str, *, says: bool
) -> None:
    (tmp_path / "5/fd").mkdir(parents=True)
    (tmp_path / "5/fd/3").symlink_to(device)

    spins = look_around(Finding(MEMBER, Activity.MOVING, "item (t.py:3)"), OpenFiles((), tmp_path))
    runs = look_around(Finding(MEMBER, Activity.MOVING), OpenFiles((), tmp_path))

    assert spins.detail == " and may wait for its GPU" * says
    assert not runs.detail


def test_the_name_of_an_awaited_file_cannot_move_a_cursor(tmp_path: Path) -> None:
    (tmp_path / "5/task/5").mkdir(parents=True)
    (tmp_path / "5/task/5/syscall").write_text("0 0x3 0x1 0x1 0x0 0x0 0x0 0x7ffe 0x7fff\n")
    (tmp_path / "5/fd").mkdir()
    (tmp_path / "5/fd/3").symlink_to("/data/\x1b[2J\nb")

    assert find_file(5, 5, tmp_path) == (FarEnd("/data/�[2J�b"),)


@pytest.mark.parametrize(
    ("library", "may_end"), [("jaxlib/xla_extension.so", True), ("torch/lib/libc10.so", False)]
)
def test_a_futex_may_wait_for_what_a_compiled_program_computes(
    tmp_path: Path, library: str, *, may_end: bool
) -> None:
    (tmp_path / "5/task/5").mkdir(parents=True)
    (tmp_path / "5/maps").write_text(f"7f0-7f1 r-xp 0 fe:00 9 /venv/site-packages/{library}\n")
    waits = Finding(MEMBER, Activity.LOCK, "futex_do_wait")

    assert look_around(waits, OpenFiles((), tmp_path)).may_end is may_end


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of its system calls")
@pytest.mark.parametrize(
    ("listed", "may_end"), [("other", False), ("semaphore", True), ("not a folder", True)]
)
def test_a_futex_of_a_file_that_has_a_name_may_be_anybodys(
    tmp_path: Path, listed: str, *, may_end: bool
) -> None:
    """Also behind a mapped file whose name has separators of lines, which the kernel keeps."""
    shared = tmp_path / "5/root/dev/shm"
    (tmp_path / "5/task/5").mkdir(parents=True)
    shared.parent.mkdir(parents=True)
    inode = 0
    if listed == "not a folder":
        shared.write_text("")
    else:
        shared.mkdir()
        (shared / listed).write_text("")
        inode = (shared / listed).stat().st_ino if listed == "semaphore" else 0
    odd = "6f0-6f1 r--p 0 fe:00 9 /data/a\x0bb\u2028c\n"
    (tmp_path / "5/maps").write_text(f"{odd}7f0-7f1 rw-s 0 00:1b {inode} /dev/shm/x (deleted)\n")
    (tmp_path / "5/syscall").write_text("202 0x7f0 0x109 0x0 0x0 0x0 0xffffffff 0x7ff 0x7f0")
    waits = Finding(MEMBER, Activity.LOCK, "futex_do_wait")

    assert look_around(waits, OpenFiles((), tmp_path)).may_end is may_end


@pytest.mark.parametrize(("is_python", "may_end"), [(True, True), (False, False)])
def test_a_program_of_go_that_handles_all_signals_has_no_alarm(
    tmp_path: Path, *, is_python: bool, may_end: bool
) -> None:
    (tmp_path / "5/task/5").mkdir(parents=True)
    (tmp_path / "5/status").write_text("Name:\tx\nSigCgt:\tfffffffd7fc1feff\n")
    waits = Finding(MEMBER, Activity.QUEUE, stacks=Stacks(is_python=is_python))

    assert look_around(waits, OpenFiles((), tmp_path)).may_end is may_end


@pytest.mark.parametrize(
    ("activity", "detail", "may_end"),
    [
        (Activity.QUEUE, "get (lib/python3.11/queue.py)", True),
        (Activity.PIPE, "pipe_read", True),
        (Activity.QUEUE, "_try_get_data (utils/data/dataloader.py)", False),
        (Activity.COLLECTIVE, "all_reduce", False),
    ],
)
def test_no_handler_ends_a_collective_or_loads_data(
    tmp_path: Path, activity: Activity, detail: str, *, may_end: bool
) -> None:
    """Lightning has one for SIGUSR1, by which Slurm announces the end of a job."""
    (tmp_path / "5/task/5").mkdir(parents=True)
    (tmp_path / "5/status").write_text("Name:\tx\nSigCgt:\t0000000100014202\n")

    assert (
        look_around(Finding(MEMBER, activity, detail), OpenFiles((), tmp_path)).may_end is may_end
    )


@pytest.mark.parametrize(
    ("activity", "detail"),
    [(Activity.QUEUE, "get (queue.py)"), (Activity.LOCK, "join (threading.py)")],
)
def test_who_waits_for_a_thread_that_waits_for_a_disk_waits_for_the_disk(
    tmp_path: Path, activity: Activity, detail: str
) -> None:
    (tmp_path / "5/task/6").mkdir(parents=True)
    (tmp_path / "5/task/6/stat").write_text("6 (a) b) D 1 5 5")
    (tmp_path / "5/task/6/syscall").write_text("0 0x9 0x1 0x2 0x3 0x4 0x5 0x6 0x7")
    (tmp_path / "5/fd").mkdir()
    (tmp_path / "5/fd/9").symlink_to("/mnt/ckpt/step_7.pt")

    found = look_around(Finding(MEMBER, activity, detail), OpenFiles((), tmp_path))

    assert found.activity is Activity.DISK
    assert [end.text for end in found.far_ends] == ["/mnt/ckpt/step_7.pt"]


def test_the_holder_of_a_file_lock_may_be_unknown(tmp_path: Path) -> None:
    """It is on another host, or has left the lock to a child."""
    kernel = KernelState("S", 1.0, wait_channel="locks_lock_inode_wait", is_endless=True)
    waits = Finding(MEMBER, Activity.LOCK, "locks_lock_inode_wait", kernel=kernel)
    (end,) = look_around(waits, OpenFiles((), tmp_path)).far_ends

    assert end == FarEnd("a process that is not known")


@pytest.mark.parametrize("waits_itself", [True, False])
def test_a_thread_that_sleeps_may_wake_who_waits_for_threads(
    tmp_path: Path, *, waits_itself: bool
) -> None:
    """One of its threads waits for a server, another one looks around now and then."""
    (tmp_path / "5/task/6").mkdir(parents=True)
    (tmp_path / "5/task/6/stat").write_text("6 (a) b) S 1 5 5")
    (tmp_path / "5/task/6/wchan").write_text("hrtimer_nanosleep")
    call = ("recv_into", "/lib/socket.py") if waits_itself else ("Thread.join", "/lib/threading.py")
    threads = [
        ThreadStack(name, tid, (Frame(*frame, 1),))
        for name, tid, frame in (
            ("MainThread", 5, call),
            ("sleeps", 6, ("look", "/srv/look.py")),
            ("http", 7, ("recv_into", "/lib/socket.py")),
        )
    ]
    waits = Finding(
        MEMBER,
        Activity.SERVER,
        "recv_into (socket.py)",
        stacks=Stacks(tuple(threads)),
        kernel=KernelState("S", 1.0),
    )

    assert look_around(waits, OpenFiles((), tmp_path)).may_end is not waits_itself


@pytest.mark.parametrize("trains", [True, False])
def test_the_wait_of_a_training_thread_is_not_that_of_another_thread(
    tmp_path: Path, *, trains: bool
) -> None:
    (tmp_path / "5/task/6").mkdir(parents=True)
    (tmp_path / "5/task/6/stat").write_text("6 (a) b) S 1 5 5")
    (tmp_path / "5/task/6/wchan").write_text("unix_stream_read_generic")
    frames = (Frame("recv", "/srv/train.py", 1), Frame("run", "/venv/ray/train/v2/x.py", 1))
    thread = ThreadStack("TrainingThread(loop)" if trains else "other", 6, frames)
    waits = Finding(MEMBER, Activity.QUEUE, "recv (train.py)", stacks=Stacks((thread,)))

    assert look_around(waits, OpenFiles((), tmp_path)).may_end is not trains


REPORTER = "/venv/site-packages/tqdm/_monitor.py"
ENDLESS = "202 0x7f0 0x80 0x0 0x0 0x0 0xffffffff 0x7ff 0x7f0"
TIMED = "202 0x7f0 0x80 0x0 0x7fe 0x0 0xffffffff 0x7ff 0x7f0"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of its system calls")
@pytest.mark.parametrize(
    ("call", "file", "may_end"),
    [
        (TIMED, "/srv/feed.py", True),
        (ENDLESS, "/srv/feed.py", False),
        (ENDLESS, "/usr/lib/subprocess.py", True),
        (TIMED, REPORTER, False),
        (TIMED, "/usr/lib/socket.py", False),  # of the server that it waits for, more is known
    ],
)
def test_a_thread_that_looks_around_may_wake_the_main_thread(
    tmp_path: Path, call: str, file: str, *, may_end: bool
) -> None:
    (tmp_path / "5/task/6").mkdir(parents=True)
    (tmp_path / "5/task/6/stat").write_text("6 (a) b) S 1 5 5")
    (tmp_path / "5/task/6/wchan").write_text("futex_do_wait")
    (tmp_path / "5/task/6/syscall").write_text(call)
    thread = ThreadStack("Thread-1", 6, (Frame("wait", file, 1),))
    waits = Finding(MEMBER, Activity.QUEUE, "get (queue.py)", stacks=Stacks((thread,)))

    assert look_around(waits, OpenFiles((), tmp_path)).may_end is may_end


@pytest.mark.parametrize(("file", "may_end"), [("/srv/feed.py", True), (REPORTER, False)])
def test_a_thread_without_a_known_id_may_wake_the_main_thread(
    tmp_path: Path, file: str, *, may_end: bool
) -> None:
    """Before Python 3.11, no thread has one."""
    (tmp_path / "5/task").mkdir(parents=True)
    threads = (
        ThreadStack("MainThread", 0, (Frame("get", "/usr/lib/queue.py", 1),)),
        ThreadStack("Thread-1", 0, (Frame("wait", file, 1),)),
    )
    waits = Finding(MEMBER, Activity.QUEUE, "get (queue.py)", stacks=Stacks(threads))

    assert look_around(waits, OpenFiles((), tmp_path)).may_end is may_end


@pytest.mark.parametrize(("file", "may_end"), [("/srv/feed.py", True), (REPORTER, False)])
def test_a_sleep_of_a_reporter_wakes_nobody(tmp_path: Path, file: str, *, may_end: bool) -> None:
    (tmp_path / "5/task/6").mkdir(parents=True)
    (tmp_path / "5/task/6/stat").write_text("6 (a) b) S 1 5 5")
    (tmp_path / "5/task/6/wchan").write_text("hrtimer_nanosleep")
    thread = ThreadStack("Thread-1", 6, (Frame("look", file, 1),))
    waits = Finding(MEMBER, Activity.QUEUE, "get (queue.py)", stacks=Stacks((thread,)))

    assert look_around(waits, OpenFiles((), tmp_path)).may_end is may_end


@pytest.mark.parametrize(("threads", "stands"), [(MAX_THREADS - 1, True), (MAX_THREADS, False)])
def test_of_a_process_with_too_many_threads_it_is_not_known_whether_it_acts(
    tmp_path: Path, threads: int, *, stands: bool
) -> None:
    for tid in range(threads):
        (tmp_path / f"5/task/{tid}").mkdir(parents=True)
        (tmp_path / f"5/task/{tid}/stat").write_text(f"{tid} (a) T 1 5 5")

    assert stands_for_ever(5, tmp_path) is stands


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of its system calls")
def test_a_select_of_more_files_than_a_process_can_have_is_not_counted(tmp_path: Path) -> None:
    """Any program may call it so; a look at each number would take minutes."""
    (tmp_path / "5/task/6").mkdir(parents=True)
    call = tmp_path / "5/task/6/syscall"
    call.write_text("23 0x7fffffff 0x0 0x0 0x0 0x0 0x0 0x7ff 0x7f0")
    assert find_awaited_files(5, 6, tmp_path) is None
    call.write_text("23 0x9 0x0 0x0 0x0 0x0 0x0 0x7ff 0x7f0")
    assert find_awaited_files(5, 6, tmp_path) == ()


@pytest.mark.parametrize(("peers", "outside"), [({}, True), ({77: 78}, False), ({77: 79}, True)])
def test_a_local_socket_whose_other_end_is_not_known_may_lead_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peers: dict[int, int], *, outside: bool
) -> None:
    """As in a container, whose sockets are those of another namespace."""
    for pid, inode in ((5, 77), (6, 78)):
        (tmp_path / f"{pid}/fd").mkdir(parents=True)
        (tmp_path / f"{pid}/fd/3").symlink_to(f"socket:[{inode}]")
    (tmp_path / "5/net").mkdir()
    (tmp_path / "5/net/unix").write_text("Num\n0: 2 0 0 1 3 77\n")
    sockets = [
        KernelSocket(inode, listens=False, name=b"", peer=one) for inode, one in peers.items()
    ]
    monkeypatch.setattr(open_files, "read_unix_sockets", lambda: sockets)
    inside = {Identity(pid, 1) for pid in (5, 6)}

    assert leads_outside(5, [3], OpenFiles(inside, tmp_path)) is outside


@pytest.mark.parametrize("limit", ["MAX_OPEN_FILES", "MAX_SECONDS"])
def test_among_too_many_processes_nobody_is_known_to_have_the_other_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    for pid in (5, 6):
        (tmp_path / f"{pid}/fd").mkdir(parents=True)
        (tmp_path / f"{pid}/fd/3").symlink_to("pipe:[77]")
    inside = {Identity(pid, 1) for pid in (5, 6)}

    assert find_pipe_ends(5, 3, OpenFiles(inside, tmp_path)) == ()
    monkeypatch.setattr(open_files, limit, -1)
    assert find_pipe_ends(5, 3, OpenFiles(inside, tmp_path)) == (UNKNOWN,)


def test_a_connection_that_is_newer_than_the_tables_may_lead_outside(tmp_path: Path) -> None:
    (tmp_path / "5/fd").mkdir(parents=True)
    files = OpenFiles({Identity(5, 1)}, tmp_path)
    assert find_servers(5, None, files) == ()

    (tmp_path / "5/fd/3").symlink_to("socket:[77]")

    assert leads_outside(5, [3], files)
    assert find_servers(5, 3, files) == (UNKNOWN,)


def test_many_waits_read_the_open_files_of_all_processes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "5/fd").mkdir(parents=True)
    for number in range(9):
        (tmp_path / f"5/fd/{number}").symlink_to(f"pipe:[{number}]")
    looks: list[Path] = []

    def list_pids(root: Path) -> list[int]:
        looks.append(root)
        return [5]

    monkeypatch.setattr(open_files, "list_pids", list_pids)
    files = OpenFiles({Identity(5, 1)}, tmp_path)
    assert [find_pipe_ends(5, number, files) for number in range(9)] == [()] * 9
    assert looks == [tmp_path]
