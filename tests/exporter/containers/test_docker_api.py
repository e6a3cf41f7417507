from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from trainwarden_exporter.containers.docker_api import (
    Inspection,
    parse_events,
    parse_inspection,
    parse_log,
    parse_time,
)

if TYPE_CHECKING:
    from collections.abc import Callable

FATAL = "fatal: destination path 'AReaL' already exists and is not an empty directory."


@pytest.fixture
def inspection(recorded: Callable[[str], bytes]) -> Callable[[str], Inspection]:
    return lambda name: parse_inspection(recorded(f"inspect-{name}.json"))


def changed(body: bytes, **state: Any) -> bytes:
    answer = json.loads(body)
    answer["State"] |= state
    return json.dumps(answer).encode()


class TestAContainer:
    def test_that_runs_again_tells_when_it_ended_and_not_how(
        self, inspection: Callable[[str], Inspection]
    ) -> None:
        seen = inspection("running")
        assert (seen.state, seen.restart_count, seen.exit_code) == ("running", 5, None)
        assert seen.started == pytest.approx(1795240863.506002)
        assert seen.finished == pytest.approx(1795240861.774881)
        assert (seen.oom_killed, seen.health, seen.tty) == (False, None, False)

    def test_that_waits_for_its_restart_has_not_started_as_often_as_it_restarts(
        self, inspection: Callable[[str], Inspection]
    ) -> None:
        waiting, running = inspection("restarting"), inspection("running")
        assert (waiting.state, waiting.exit_code) == ("restarting", 128)
        assert (waiting.restart_count, waiting.starts) == (5, 5)
        assert (running.restart_count, running.starts) == (5, 6)

    def test_that_was_killed_for_want_of_memory_says_so(
        self, inspection: Callable[[str], Inspection]
    ) -> None:
        seen = inspection("oom")
        assert (seen.state, seen.exit_code, seen.oom_killed) == ("exited", 137, True)

    def test_tells_its_health(self, inspection: Callable[[str], Inspection]) -> None:
        assert inspection("unhealthy").health == "unhealthy"

    def test_that_never_started_has_no_times(self, inspection: Callable[[str], Inspection]) -> None:
        seen = inspection("created")
        assert (seen.started, seen.finished, seen.exit_code, seen.starts) == (None, None, None, 0)

    def test_without_a_health_check_has_no_health(self, recorded: Callable[[str], bytes]) -> None:
        body = changed(recorded("inspect-running.json"), Health={"Status": "none"})
        assert parse_inspection(body).health is None

    @pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"State": null}', b'{"State": []}'])
    def test_that_is_none_is_an_error(self, body: bytes) -> None:
        with pytest.raises(ValueError, match=r".+"):
            parse_inspection(body)

    def test_in_a_state_that_is_not_known_is_an_error(
        self, recorded: Callable[[str], bytes]
    ) -> None:
        body = changed(recorded("inspect-running.json"), Status="dreaming")
        with pytest.raises(ValueError, match="dreaming"):
            parse_inspection(body)


class TestEvents:
    def test_tell_of_starts_ends_and_kills(self, recorded: Callable[[str], bytes]) -> None:
        events = list(parse_events(recorded("events.jsonl")))
        first, second = events[:2]
        assert (first.action, first.name, first.exit_code) == ("start", "trainer", None)
        assert (second.action, second.name, second.exit_code) == ("die", "trainer", 128)
        assert second.timestamp == pytest.approx(1795240855.641481)
        assert [event.action for event in events if event.name == "oom"] == ["start", "oom", "die"]

    def test_are_read_without_the_fields_that_new_versions_leave_out(
        self, recorded: Callable[[str], bytes]
    ) -> None:
        old = recorded("events.jsonl")
        fields = ("status", "id", "from")
        lines = [
            {key: value for key, value in json.loads(line).items() if key not in fields}
            for line in old.splitlines()
        ]
        new = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
        assert list(parse_events(new)) == list(parse_events(old))

    @pytest.mark.parametrize("body", [b"no\n", b"[]\n", b'{"Action": "start"}\n'])
    def test_that_are_none_are_an_error(self, body: bytes) -> None:
        with pytest.raises(ValueError, match=r".+"):
            list(parse_events(body))


class TestTimes:
    @pytest.mark.parametrize(
        ("text", "microsecond"),
        [
            ("2026-11-21T05:35:34.399511438Z", 399511),
            ("2026-11-21T06:01:03.506002Z", 506002),
            ("2026-11-21T06:01:03.5Z", 500000),
            ("2026-11-21T06:01:03Z", 0),
        ],
    )
    def test_are_read_with_as_many_digits_as_there_are(self, text: str, microsecond: int) -> None:
        moment = parse_time(text)
        assert moment is not None
        assert datetime.fromtimestamp(moment, UTC).microsecond == microsecond

    def test_of_another_zone_are_the_same_moment(self) -> None:
        assert parse_time("2026-11-21T07:00:00+01:00") == parse_time("2026-11-21T06:00:00Z")

    def test_may_be_never(self) -> None:
        assert parse_time("0001-01-01T00:00:00Z") is None


class TestALog:
    def test_of_two_simultaneous_outputs_the_error_comes_last(
        self, recorded: Callable[[str], bytes]
    ) -> None:
        lines = parse_log(recorded("log-frames.bin"), tty=False)
        assert [line for _, line in lines] == ["Cloning into 'AReaL'...", FATAL] * 3
        assert lines[-1][0] == pytest.approx(1795240863.506716)

    def test_of_a_terminal_is_plain_text(self, recorded: Callable[[str], bytes]) -> None:
        ((_, line),) = parse_log(recorded("log-tty.bin"), tty=True)
        assert line == "\x1b[31mCUDA error: out of memory\x1b[0m"

    def test_that_is_cut_off_loses_no_more_than_what_is_cut(
        self, recorded: Callable[[str], bytes]
    ) -> None:
        body = recorded("log-frames.bin")
        assert [len(parse_log(body[:-cut], tty=False)) for cut in (1, 100, 540)] == [5, 5, 0]

    def test_may_hold_anything(self) -> None:
        garbage = b"\x01\0\0\0\0\0\0\x04\xff\xfe\n\n"
        assert parse_log(garbage, tty=False) == []
        assert parse_log(b"no time at all\n\xff\n", tty=True) == []
