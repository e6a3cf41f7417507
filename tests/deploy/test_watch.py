from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import supervision
import watch
from supervision import Program
from watch import FAILURES, FIRST_FAILURES, Watch

TICK = "ver:3.0 server:supervisor serial:1 pool:watch poolserial:1 eventname:TICK_5 len:15\n"
PAYLOAD = "when:1201063880"


def running(pid: int = 7, state: str = "RUNNING") -> Program:
    return Program("remediator", state, pid, 0)


def test_a_program_that_answers_is_left_alone() -> None:
    seen = Watch()
    assert not any(seen.hangs(running(), well=True) for _ in range(100))


def test_a_program_that_has_stopped_answering_is_ended_once() -> None:
    seen = Watch()
    seen.hangs(running(), well=True)
    message = [seen.hangs(running(), well=False) for _ in range(FAILURES + 2)]
    assert message == [False] * (FAILURES - 1) + [True, False, False]


def test_one_answer_begins_the_count_again() -> None:
    seen = Watch()
    for _ in range(5):
        assert not any(seen.hangs(running(), well=False) for _ in range(FAILURES - 1))
        assert not seen.hangs(running(), well=True)


def test_a_program_that_starts_has_longer() -> None:
    seen = Watch()
    message = [seen.hangs(running(), well=False) for _ in range(FIRST_FAILURES)]
    assert message == [False] * (FIRST_FAILURES - 1) + [True]


def test_another_process_is_another_count() -> None:
    seen = Watch()
    seen.hangs(running(), well=True)
    for _ in range(FAILURES - 1):
        seen.hangs(running(), well=False)
    assert not seen.hangs(running(8), well=False)


@pytest.mark.parametrize("state", ["STOPPED", "STOPPING", "STARTING", "BACKOFF", "FATAL"])
def test_what_does_not_run_does_not_hang(state: str) -> None:
    seen = Watch()
    seen.hangs(running(), well=True)
    assert not any(seen.hangs(running(state=state), well=False) for _ in range(100))


@pytest.fixture
def answering() -> Iterator[tuple[str, list[int]]]:
    """A program's address, and the statuses that it will answer with."""
    statuses: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(statuses.pop(0))
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/-/healthy", statuses
    server.shutdown()
    server.server_close()


def test_only_200_says_that_all_is_well(answering: tuple[str, list[int]]) -> None:
    url, statuses = answering
    statuses += [200, 503, 500, 404]
    assert [watch.is_well(url) for _ in range(4)] == [True, False, False, False]
    assert not watch.is_well("http://127.0.0.1:1/")


def test_it_speaks_supervisords_protocol_and_has_it_end_what_hangs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(supervision, "read_programs", lambda _: {"remediator": running()})
    monkeypatch.setattr(supervision, "kill", lambda _, name: ended.append(name))
    monkeypatch.setattr(watch, "is_well", lambda _: len(ended) > 0)
    answers, reported = io.StringIO(), io.StringIO()
    events = io.StringIO((TICK + PAYLOAD) * (FIRST_FAILURES + 3))
    watch.main([str(tmp_path), "remediator=http://x/-/healthy"], events, answers, reported)
    assert ended == ["remediator"]
    assert reported.getvalue() == "remediator (pid 7) hangs, and is killed\n"
    assert answers.getvalue() == "READY\nRESULT 2\nOK" * (FIRST_FAILURES + 3) + "READY\n"


def test_a_supervisord_that_cannot_be_asked_ends_nothing(tmp_path: Path) -> None:
    answers, reported = io.StringIO(), io.StringIO()
    watch.main(
        [str(tmp_path / "none"), "a=http://x/"], io.StringIO(TICK + PAYLOAD), answers, reported
    )
    assert "cannot ask supervisord" in reported.getvalue()
