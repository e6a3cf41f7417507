from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import NOW, ROLLOUT, is_held, make_alert

from trainwarden_exporter.gpu.holders import Holder
from trainwarden_exporter.processes.procfs import read_process
from trainwarden_remediator.__main__ import main
from trainwarden_remediator.actions.gpu_cleanup import GpuCleanupAction
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.model import Decision, Verdict

CONFIG = """\
token_file: token
journal: state/journal.db
hold_file: state/hold
targets:
  - {run: demo, worker: rollout-0, process: {start: [/bin/true]}}
"""
WATCHED = """\
runs:
  - name: demo
    user: root
    workers:
      - {name: rollout-0, match: {command: rollout}}
      - {name: trainer, match: {command: trainer}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("a-token-of-some-length\n")
    (tmp_path / "exporter.yml").write_text(WATCHED)
    (tmp_path / "remediator.yml").write_text(CONFIG)
    return tmp_path / "remediator.yml"


def filled(config: Path) -> None:
    journal = Journal(config.parent / "state" / "journal.db", clock=FakeClock())
    journal.record_alerts([make_alert(starts_at=NOW - 20)])
    journal.record_decisions([(journal.open_incidents()[0], Decision(Verdict.ACT, "restart"))])
    number = journal.record_intent(1, ROLLOUT, "restart", [])
    journal.record_result(number, "failed", error="a\nb")
    journal.close()


Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(("options", "ended"), [([], 0), (["--dry-run"], 0), (["--end"], 1)])
def test_leftovers_on_a_gpu_are_listed_and_ended_only_on_request(
    config: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    ended: int,
) -> None:
    process = read_process(os.getpid())
    assert process is not None
    holder, calls = Holder(process, command="python train.py", owner="root"), []

    def perform(*_: object, **given: object) -> dict[str, list[object]]:
        calls.append(given["intended"])
        return {"ended": [{}], "killed": []}

    monkeypatch.setattr(GpuCleanupAction, "select", lambda _: ((), (holder,)))
    monkeypatch.setattr(GpuCleanupAction, "perform", perform)
    assert main(["clean-gpu", "--config.file", str(config), *options]) == 0
    assert f"leftover  pid {process.pid}, root" in capsys.readouterr().out
    assert calls == [[process.identity]] * ended


def test_check_says_what_is_good_and_what_is_no_target(config: Path, capsys: Captured) -> None:
    rules = config.parent / "alerts"
    rules.mkdir()
    (rules / "none.yml").write_text("groups: []\n")
    assert main(["check", str(config)]) == 0
    output = capsys.readouterr()
    assert output.out == f"{config}: ok (mode observe, 1 target)\n"
    (doubt,) = output.err.splitlines()
    assert doubt.startswith(f"{config}: warning: worker trainer of run demo is not a target")


def test_check_says_what_will_hardly_work_here(config: Path, capsys: Captured) -> None:
    (config.parent / "token").unlink()
    config.write_text(CONFIG.replace("/bin/true", "/no/such/program"))
    assert main(["check", str(config)]) == 0
    output = capsys.readouterr().err
    assert "does not exist: `make up` creates it when it starts" in output
    assert "targets[0].process.start: no such program: /no/such/program" in output
    config.write_text(CONFIG.replace("/bin/true]", "/bin/true], cwd: nowhere"))
    assert main(["check", str(config)]) == 0
    assert "targets[0].process.cwd: no such directory" in capsys.readouterr().err


def test_check_says_every_problem_with_its_line(config: Path, capsys: Captured) -> None:
    config.write_text(CONFIG.replace("rollout-0", "'*'") + "mode: maybe\n")
    assert main(["check", str(config)]) == 1
    reported = capsys.readouterr()
    assert reported.out == ""
    assert [line.split(": ")[0] for line in reported.err.splitlines()] == [
        f"{config}:5",
        f"{config}:6",
    ]


@pytest.mark.parametrize("command", ["check", "run", "journal", "hold", "resume"])
def test_a_bad_file_is_one_clear_line(config: Path, capsys: Captured, command: str) -> None:
    config.write_text("token_file: [\n")
    file = [str(config)] if command == "check" else [f"--config.file={config}"]
    assert main([command, *file]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{config}:")


@pytest.mark.parametrize(
    ("options", "output"),
    [
        (["--config.file=/no/such/file"], "/no/such/file: No such file"),
        (["--web.listen-address=192.0.2.1:1"], "192.0.2.1:1"),
        (["--web.config.file=/no/such/web.yml"], "/no/such/web.yml"),
    ],
)
def test_what_cannot_run_says_why_in_one_line(
    config: Path, capsys: Captured, options: list[str], output: str
) -> None:
    assert main(["run", f"--config.file={config}", *options]) == 1
    (line,) = (li for li in capsys.readouterr().err.splitlines() if not li.startswith("ts="))
    assert output in line


@pytest.mark.parametrize(
    ("error", "output"),
    [(RuntimeError("can't start new thread"), "can't start new thread"), (MemoryError(), "memory")],
    ids=["threads", "memory"],
)
def test_a_box_without_threads_to_begin_with_is_one_clear_line(
    config: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    output: str,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise error

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert main(["run", f"--config.file={config}"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("cannot start ")
    assert output in line


def test_a_flag_that_makes_no_sense_is_misuse(config: Path, capsys: Captured) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["run", f"--config.file={config}", "--web.listen-address=nonsense"])
    assert "not a listen address" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "short\n"])
def test_it_does_not_run_without_a_usable_token(
    config: Path, capsys: Captured, content: str
) -> None:
    (config.parent / "token").write_text(content)
    assert main(["run", f"--config.file={config}"]) == 1
    assert f"{config.parent / 'token'}" in capsys.readouterr().err


def test_a_damaged_journal_is_one_clear_line(config: Path, capsys: Captured) -> None:
    (config.parent / "state").mkdir()
    (config.parent / "state" / "journal.db").write_text("my thesis\n" * 500)
    assert main(["run", f"--config.file={config}"]) == 1
    assert "not a database" in capsys.readouterr().err
    assert main(["journal", f"--config.file={config}"]) == 1
    assert "not a database" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [[], ["dance"], ["run", "--mode=perhaps"], ["run", "--conf=x"]]
)
def test_wrong_usage_is_reported(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_the_journal_is_reported_as_a_table(config: Path, capsys: Captured) -> None:
    filled(config)
    assert main(["journal", f"--config.file={config}"]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["time", "incident", "worker", "event", "what"]
    assert [line.split()[2:5] for line in lines] == [
        ["#1", "demo/rollout-0", kind] for kind in ("alert", "decision", "intent", "result")
    ]


def test_the_journal_is_reported_as_json(config: Path, capsys: Captured) -> None:
    filled(config)
    assert main(["journal", f"--config.file={config}", "--json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["kind"] for event in events] == ["alert", "decision", "intent", "result"]
    assert events[-1]["facts"] == {"result": "failed", "error": "a\nb"}


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([], [2, 3, 4]),
        (["-n", "2"], [3, 4]),
        (["--lines=0"], []),
        (["-n", "9"], [1, 2, 3, 4]),
        (["--since=90m"], [3, 4]),
        (["--since=90m", "-n1"], [4]),
        (["--since=1d"], [1, 2, 3, 4]),
        (["--since=1m"], []),
    ],
)
def test_the_newest_of_the_journal_is_shown(
    config: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    shown: list[int],
) -> None:
    monkeypatch.setattr("trainwarden_remediator.commands.journal.NEWEST_EVENTS", 3)
    monkeypatch.setattr("trainwarden_remediator.journal.rows.BATCH_ROWS", 2)
    clock = FakeClock(time.time() - 3 * 3600)
    journal = Journal(config.parent / "state" / "journal.db", clock=clock)
    for passed in (0, 0, 7200, 0):
        clock.pass_by(passed)
        journal.record_event("alerts_stale")
    journal.close()
    assert main(["journal", f"--config.file={config}", "--json", *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == shown


def test_the_journal_of_one_incident_is_shown(config: Path, capsys: Captured) -> None:
    filled(config)
    for number, count in (("1", 4), ("#1", 4), ("2", 0)):
        assert main(["journal", f"--config.file={config}", "--json", "--incident", number]) == 0
        assert len(capsys.readouterr().out.splitlines()) == count


def test_a_runbook_is_printed_and_a_misspelled_name_corrected(capsys: Captured) -> None:
    assert main(["runbook", "TrainingOomKill"]) == 0
    assert capsys.readouterr().out.startswith("# TrainingOomKill\n")
    assert main(["runbook", "TrainingOonKill"]) == 1
    assert capsys.readouterr().err == (
        "no runbook TrainingOonKill; did you mean TrainingOomKill?\n"
    )


def test_a_journal_that_is_not_there_is_one_clear_line(config: Path, capsys: Captured) -> None:
    assert main(["journal", f"--config.file={config}"]) == 1
    assert ": no journal; has the remediator run?" in capsys.readouterr().err
    (config.parent / "state" / "journal.db").mkdir(parents=True)
    assert main(["journal", f"--config.file={config}"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{config.parent / 'state/journal.db'}: " in line


def test_following_waits_for_the_journal_and_tells_what_is_new(config: Path) -> None:
    command = [sys.executable, "-m", "trainwarden_remediator", "journal", "--follow", "--json"]
    follower = subprocess.Popen(
        [*command, f"--config.file={config}"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert follower.stdout is not None
        filled(config)
        kinds = [json.loads(follower.stdout.readline())["kind"] for _ in range(4)]
        assert kinds == ["alert", "decision", "intent", "result"]
        journal = Journal(config.parent / "state" / "journal.db", clock=FakeClock())
        journal.record_alerts([make_alert(starts_at=NOW)])
        journal.close()
        assert json.loads(follower.stdout.readline())["kind"] == "alert"
        assert follower.poll() is None
    finally:
        follower.kill()
        follower.wait(60)
        follower.communicate()


def test_a_reader_that_goes_away_is_no_error(config: Path) -> None:
    filled(config)
    teller = subprocess.Popen(
        [sys.executable, "-m", "trainwarden_remediator", "journal", f"--config.file={config}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert teller.stdout is not None
    assert teller.stderr is not None
    teller.stdout.close()
    output = teller.stderr.read()
    teller.stderr.close()
    assert (teller.wait(60), output) == (141, "")


def test_hold_and_resume_make_and_remove_the_file(config: Path, capsys: Captured) -> None:
    hold = config.parent / "state" / "hold"
    for _ in range(2):
        assert main(["hold", f"--config.file={config}"]) == 0
        assert is_held(hold)
    assert str(hold) in capsys.readouterr().out
    for _ in range(2):
        assert main(["resume", f"--config.file={config}"]) == 0
        assert not is_held(hold)


def test_a_hold_that_cannot_be_made_is_reported(config: Path, capsys: Captured) -> None:
    (config.parent / "state").write_text("in the way")
    assert main(["hold", f"--config.file={config}"]) == 1
    assert "state" in capsys.readouterr().err


def test_the_real_command_answers() -> None:
    command = Path(sys.executable).with_name("trainwarden-remediator")
    reported = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert reported.stdout.startswith("trainwarden ")


PROGRAM = """
import sys
from trainwarden_remediator.__main__ import main
main(sys.argv[1:])
print([one for one in {heavy} if one in sys.modules])
"""
CONFIGURATION = ["pydantic", "trainwarden_remediator.config.schema"]


@pytest.mark.parametrize(
    ("command", "heavy"),
    [
        (["hold", "why"], ["aiohttp"]),
        (["resume"], ["aiohttp"]),
        (["approve", "1"], ["aiohttp"]),
        (["journal"], ["aiohttp"]),
        (["report"], ["trainwarden_remediator.actions"]),
        (["notify-test"], ["trainwarden_remediator.actions"]),
        (["clean-gpu"], ["aiohttp"]),
        (["check"], ["trainwarden_remediator.engine.executor"]),
        (["runbook", "TrainingOomKill"], ["aiohttp", *CONFIGURATION]),
    ],
    ids=lambda one: one[0],
)
def test_a_short_command_imports_only_what_it_needs(
    config: Path, command: list[str], heavy: list[str]
) -> None:
    filled(config)
    named = {"check": [str(config)], "runbook": []}.get(command[0], [f"--config.file={config}"])
    program = PROGRAM.format(heavy=["trainwarden_remediator.app", *heavy])
    done = subprocess.run(
        [sys.executable, "-c", program, *command, *named],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "[]"
