from __future__ import annotations

import json
from datetime import UTC
from typing import Any, get_args

import pytest
from tests.remediator.samples import NOW

from trainwarden_remediator.journal.event_text import (
    _REASONS,
    as_json,
    describe,
    format_heading,
    format_line,
    printable,
)
from trainwarden_remediator.journal.rows import Event
from trainwarden_remediator.model import Reason


def event(kind: str, facts: dict[str, Any] | None = None, **changes: Any) -> Event:
    content: dict[str, Any] = {
        "id": 1,
        "at": NOW,
        "incident": 4,
        "action": 2,
        "kind": kind,
        "alert": "TrainingWorkerGone",
        "run": "demo",
        "worker": "rollout-0",
        "facts": facts or {},
        **changes,
    }
    return Event(**content)


@pytest.mark.parametrize(
    ("kind", "facts", "message"),
    [
        ("alert", {"alert": "x"}, "TrainingWorkerGone"),
        ("alert", {"alert": "x", "again": True}, "TrainingWorkerGone fires again"),
        ("resolved", {}, "TrainingWorkerGone"),
        (
            "decision",
            {"verdict": "act", "reason": "restart"},
            "TrainingWorkerGone: act: restart the worker",
        ),
        (
            "decision",
            {"verdict": "refuse", "reason": "progressing"},
            "TrainingWorkerGone: no action: healed, and the run makes progress",
        ),
        (
            "decision",
            {"verdict": "refuse", "reason": "alert_stale"},
            "TrainingWorkerGone: closed: the alert stopped arriving",
        ),
        (
            "decision",
            {"verdict": "refuse", "reason": "alert_stale", "detail": "TrainingWorkerRestartLoop"},
            (
                "TrainingWorkerGone: not known to be over: its alert does not arrive while "
                "TrainingWorkerRestartLoop fires"
            ),
        ),
        (
            "decision",
            {"verdict": "wait", "reason": "observation_failed", "detail": "it is away"},
            "TrainingWorkerGone: wait: observation failed: no action taken (it is away)",
        ),
        (
            "decision",
            {"verdict": "wait", "reason": "of_tomorrow"},
            "TrainingWorkerGone: wait: of_tomorrow",
        ),
        ("intent", {"processes": [7, 8]}, "action 2: about to restart processes 7, 8"),
        ("intent", {"processes": []}, "action 2: about to start the worker"),
        (
            "intent",
            {"processes": [7], "doing": "gpu_cleanup"},
            "action 2: about to terminate leftover GPU processes: process 7",
        ),
        (
            "end",
            {"processes": [{"pid": 7, "owner": "ann", "command": "python train.py"}]},
            "SIGTERM to process 7 of ann (python train.py)",
        ),
        (
            "result",
            {"result": "done", "ended": [{"pid": 7}, {"pid": 8}], "killed": [8]},
            "terminated processes 7, 8, SIGKILL to process 8; the GPU memory is free",
        ),
        ("stop_deferred", {}, "a checkpoint is being written, or may be: stop deferred"),
        ("stop", {"processes": [7]}, "SIGTERM to process 7"),
        (
            "kill",
            {"processes": [7], "seconds": 30.0},
            "SIGKILL to process 7: did not end within 30 s of SIGTERM",
        ),
        ("start", {"command": ["python", "a b"]}, "python a b"),
        (
            "result",
            {"result": "done", "started_by": "trainwarden", "processes": [9], "killed": []},
            "started process 9",
        ),
        (
            "result",
            {"result": "done", "started_by": "trainwarden", "processes": [9], "killed": [7]},
            "started process 9, SIGKILL to process 7",
        ),
        (
            "result",
            {"result": "done", "started_by": "another", "processes": [9]},
            "another program started process 9 first",
        ),
        (
            "result",
            {"result": "done", "settled": "started"},
            "done, as found after a restart of the remediator",
        ),
        ("result", {"result": "failed", "error": "no such file"}, "failed: no such file"),
        ("result", {"result": "interrupted", "found": "untouched"}, "interrupted: untouched"),
        (
            "outcome",
            {"outcome": "healed", "seconds": 6.5},
            "healed: verified 6.5 s after the action began",
        ),
        (
            "outcome",
            {"outcome": "healed", "seconds": 6.5, "sigterm_ignored": 3.0},
            (
                "healed: verified 6.5 s after the action began; it did not end within 3 s of "
                "SIGTERM, and was killed: it may have saved nothing then"
            ),
        ),
        (
            "decision",
            {"verdict": "wait", "reason": "alert_lingers"},
            "TrainingWorkerGone: healed; the alert has not resolved yet",
        ),
        ("outcome", {"outcome": "not_healed", "seen": "it is dead"}, "not healed: it is dead"),
        ("outcome", {"outcome": "not_healed"}, "not healed"),
        ("of_tomorrow", {"a": 1}, '{"a": 1}'),
    ],
)
def test_says_what_happened(kind: str, facts: dict[str, Any], message: str) -> None:
    assert describe(event(kind, facts)) == message


def test_there_are_words_for_every_reason_that_is_written_down() -> None:
    assert set(_REASONS) == set(get_args(Reason)) - {"needs_observation"}


def test_a_line_of_the_table() -> None:
    assert format_line(event("resolved"), UTC) == (
        "2027-01-15 08:00:00  #4        demo/rollout-0            "
        "resolved        TrainingWorkerGone"
    )
    assert [
        format_heading().index(word) for word in ("time", "incident", "worker", "event", "what")
    ] == [*[0, 21, 31, 57, 73]]


def test_what_is_about_no_worker_shows_a_dash() -> None:
    assert format_line(event("resolved", run="", worker="", incident=None), UTC).split()[2:4] == [
        "-",
        "resolved",
    ]


@pytest.mark.parametrize("evil", ["a\x1b[2Jb", "a\N{RIGHT-TO-LEFT OVERRIDE}b", "a\0b"])
def test_nothing_moves_the_cursor_or_fakes_a_line(evil: str) -> None:
    reported = format_line(event("alert", {}, alert=evil, run=evil, worker=evil), UTC)
    assert reported.count("a\N{REPLACEMENT CHARACTER}") == 3
    assert reported.isprintable()
    assert printable("häuser ✓") == "häuser ✓"


@pytest.mark.parametrize("text", ["a\nb", "a\r\n\n  b", "a\rb", "a\tb", "a\N{LINE SEPARATOR}b"])
def test_lines_are_joined_by_spaces(text: str) -> None:
    command = ["sh", "-c", text]
    started = format_line(event("start", {"command": command}, alert=text, run=text), UTC)
    assert started.endswith("start           sh -c a b")
    assert " a b/rollout-0 " in started
    unknown = format_line(event("news", {"text": "häuser"}), UTC)
    assert unknown.endswith('{"text": "häuser"}')


def test_as_json_is_one_line_that_holds_everything() -> None:
    text = as_json(event("start", {"command": ["a\nb"]}, worker="x\ny"))
    assert "\n" not in text
    assert json.loads(text) == {
        "id": 1,
        "at": NOW,
        "incident": 4,
        "action": 2,
        "kind": "start",
        "alert": "TrainingWorkerGone",
        "run": "demo",
        "worker": "x\ny",
        "facts": {"command": ["a\nb"]},
    }
