"""Dumps of Flight Recorders: which rank is missing, and what a hostile dump can do."""

from __future__ import annotations

import json
import os
import pickle
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import read_process
from trainwarden_exporter.processes.stacks import flight_recorder
from trainwarden_exporter.processes.stacks.flight_recorder import (
    NO_ABSENCES,
    Absences,
    Collective,
    FlightRecorders,
    Recording,
    find_absences,
    find_last,
    parse_dump,
)
from trainwarden_exporter.processes.stacks.model import Member

SAMPLES = Path(__file__).with_name("samples")
"""Of rank 0 in its fourth all_reduce: by PyTorch 2.13, of two ranks; and by 2.11, of one."""

WORLD = ("0", "default_pg")
PAIR = ("1", "data_parallel")


def entry(number: int, *, name: str = "nccl:all_reduce", **more: object) -> dict[str, object]:
    return {
        "record_id": number - 1,
        "process_group": WORLD,
        "collective_seq_id": number,
        "profiling_name": name,
        "state": "scheduled",
        "is_p2p": False,
        "retired": False,
    } | more


def dump(*entries: object, **more: object) -> dict[str, object]:
    return {"version": "2.10", "entries": list(entries), "pg_config": {}} | more


def recording(
    newest: Mapping[tuple[str, str], Collective],
    *,
    ranks: Mapping[str, frozenset[int]] | None = None,
    is_whole: bool = True,
) -> Recording:
    return Recording(newest, ranks or {}, is_whole)


def waits(number: int, name: str = "all_reduce") -> Collective:
    return Collective(number, name, completed=False)


class TestDump:
    def test_of_pytorch(self) -> None:
        parsed = parse_dump((SAMPLES / "flight_recorder_gloo.pickle").read_bytes())
        assert replace(parsed, entered={}) == recording({WORLD: waits(4)})
        assert parsed.entered[WORLD].keys() == {1, 2, 3, 4}
        assert parsed.entered[WORLD][4] - parsed.entered[WORLD][1] == pytest.approx(
            0.0438, abs=1e-4
        )
        parsed = parse_dump((SAMPLES / "flight_recorder_nccl.pickle").read_bytes())
        expected = recording({WORLD: waits(4)}, ranks={"0": frozenset({0})})
        assert replace(parsed, entered={}) == expected
        assert parsed.entered[WORLD].keys() == {1, 2, 3, 4}

    @pytest.mark.parametrize("created", [None, -1, 1 << 63, 10**400, 1.5, "1", [1]])
    def test_a_time_that_is_none_is_left_out(self, created: object) -> None:
        assert parse_dump(pickle.dumps(dump(entry(3, time_created_ns=created)))).entered == {}

    @pytest.mark.parametrize("write", [pickle.dumps, lambda one: json.dumps(one).encode()])
    def test_the_newest_collective_of_each_group(self, write: Callable[[object], bytes]) -> None:
        written = dump(
            entry(1, state="completed"),
            entry(7, process_group=PAIR, name="nccl:_all_gather_base", state="completed"),
            entry(2),
            entry(9, is_p2p=True, name="nccl:send"),
            pg_config={"1": {"name": "1", "desc": "data_parallel", "ranks": "[0, 2]"}},
        )
        assert parse_dump(write(written)) == recording(
            {WORLD: waits(2), PAIR: Collective(7, "_all_gather_base")},
            ranks={"1": frozenset({0, 2})},
        )

    def test_what_gloo_has_retired_is_complete_and_of_nccl_it_timed_out(self) -> None:
        for name, completed in (("gloo:all_reduce", True), ("nccl:all_reduce", False)):
            parsed = parse_dump(pickle.dumps(dump(entry(3, name=name, retired=True))))
            assert parsed.newest[WORLD].completed is completed

    def test_the_name_of_a_collective_cannot_move_a_cursor(self) -> None:
        parsed = parse_dump(pickle.dumps(dump(entry(3, name="nccl:a\x1b[2J\nb"))))
        assert parsed.newest[WORLD].name == "a�[2J�b"

    def test_a_dump_that_does_not_go_back_to_the_first(self) -> None:
        assert not parse_dump(pickle.dumps(dump(entry(5)))).is_whole

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"{",
            b"nothing",
            pickle.dumps([1]),
            pickle.dumps(dump())[:-3],
            b'{"entries": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            b"\x80\x02}X\x07\x00\x00\x00entries" + b"]" * 100_000 + b"a" * 99_999 + b".",
        ],
    )
    def test_anything_else_is_none(self, data: bytes) -> None:
        with pytest.raises(ValueError, match=r"."):
            parse_dump(data)

    def test_entries_of_another_form_are_left_out(self) -> None:
        odd = [None, 1, "x", {}, entry(3, collective_seq_id="3"), entry(4, process_group="0")]
        assert parse_dump(pickle.dumps(dump(*odd))).newest == {}

    def test_no_function_is_called_and_no_class_imported(self, tmp_path: Path) -> None:
        struck = tmp_path / "struck"

        class Hostile:
            def __reduce__(self) -> tuple[object, ...]:
                return Path.touch, (struck,)

        written = dump(Hostile(), entry(2, profiling_name=Hostile()), entry(3), more=Hostile())
        assert parse_dump(pickle.dumps(written)).newest == {WORLD: waits(3)}
        assert not struck.exists()

    def test_an_extension_is_not_looked_up(self) -> None:
        assert parse_dump(b"\x80\x02}X\x07\x00\x00\x00entries](\x82\x01es.").newest == {}

    def test_a_list_that_doubles_thirty_times_takes_no_memory(self) -> None:
        # each list holds the one before twice: 2**30 items if anything walked through them
        doubled = b"]q\x00" + b"".join(
            b"](" + b"h" + bytes([at]) * 1 + b"h" + bytes([at]) + b"eq" + bytes([at + 1])
            for at in range(30)
        )
        data = b"\x80\x02}X\x07\x00\x00\x00entries](" + doubled + b"es."
        began = time.process_time()
        assert parse_dump(data).newest == {}
        assert time.process_time() - began < 5


class TestLast:
    def find(self, late: Callable[[int, int], float], numbers: int = 40) -> list[object]:
        """The rank of four that enters last, by the seconds that a rank is late at a number."""
        ranks = {}
        for rank in range(4):
            entered = {number: number + late(rank, number) for number in range(1, numbers + 1)}
            ranks[rank] = replace(recording({}), entered={WORLD: entered})
        return list(find_last(ranks))

    def test_a_rank_that_nearly_always_enters_last(self) -> None:
        found = self.find(lambda rank, number: 0.25 if rank == 2 and number % 20 else 0.0)
        assert found == [(2, 38, 40, 0.25)]

    def test_none_that_is_last_by_chance_or_by_little(self) -> None:
        assert self.find(lambda rank, number: 0.25 if number % 4 == rank else 0.0) == []
        assert self.find(lambda rank, number: 0.25 if rank == 2 and number % 4 else 0.0) == []
        assert self.find(lambda rank, _: 0.005 if rank == 2 else 0.0) == []
        assert self.find(lambda rank, _: 0.25 if rank == 2 else 0.0, numbers=9) == []

    def test_none_without_a_second_rank(self) -> None:
        one = replace(recording({}), entered={WORLD: {1: 1.0}})
        assert list(find_last({})) == list(find_last({0: one, 1: recording({})})) == []


class TestAbsences:
    def test_the_rank_that_is_one_behind(self) -> None:
        found = find_absences(
            {
                0: recording({WORLD: waits(8)}),
                1: recording({WORLD: waits(8)}),
                2: recording({WORLD: Collective(7, "all_reduce")}),
            }
        )
        assert found == Absences(dict.fromkeys((0, 1), "all_reduce 8"), {2: "all_reduce 8"})

    def test_none_while_all_are_inside(self) -> None:
        assert find_absences({rank: recording({WORLD: waits(8)}) for rank in (0, 1)}) == NO_ABSENCES

    def test_none_if_nobody_waits(self) -> None:
        ahead, behind = Collective(8, "all_reduce"), Collective(7, "all_reduce")
        found = find_absences({0: recording({WORLD: ahead}), 1: recording({WORLD: behind})})
        assert found == NO_ABSENCES

    def test_a_rank_that_waits_in_another_group_is_not_the_one(self) -> None:
        pair = {"1": frozenset({1, 2})}
        found = find_absences(
            {
                0: recording({WORLD: waits(8)}),
                1: recording({WORLD: Collective(7), PAIR: waits(3)}, ranks=pair),
                2: recording({WORLD: Collective(7), PAIR: Collective(2)}, ranks=pair),
            }
        )
        assert found.absent.keys() == {2}

    def test_ranks_that_wait_for_each_other_have_none(self) -> None:
        found = find_absences(
            {
                0: recording({WORLD: waits(8), PAIR: Collective(2)}),
                1: recording({WORLD: Collective(7), PAIR: waits(3)}),
            }
        )
        assert found == NO_ABSENCES

    @pytest.mark.parametrize(
        ("group", "rank", "whole", "absent"),
        [
            (WORLD, 1, True, True),
            (WORLD, 1, False, False),
            (PAIR, 1, True, True),
            (PAIR, 3, True, False),
        ],
    )
    def test_a_rank_without_a_collective_of_its_group(
        self, group: tuple[str, str], rank: int, whole: bool, absent: bool
    ) -> None:
        ranks = {"1": frozenset({0, 1})}
        other = recording({}, ranks=ranks, is_whole=whole)
        found = find_absences({0: recording({group: waits(1)}, ranks=ranks), rank: other})
        assert found.absent == ({rank: "all_reduce 1"} if absent else {})


def member(folder: Path, rank: int = 0) -> Member:
    """This process as a rank."""
    found = read_process(os.getpid())
    assert found is not None
    key = WorkerKey("night", "trainer")
    return Member(
        key, "trainer", found.identity, 1, rank=rank, is_trainer=True,
        recorder=f"{folder}/trace_", recorder_pipe=f"{folder}/pipe_",
    )  # fmt: skip


class TestFiles:
    def write(self, folder: Path) -> None:
        (folder / "trace_0").write_bytes(pickle.dumps(dump(entry(8))))
        behind = pickle.dumps(dump(entry(7, state="completed")))
        (folder / "trace_1").write_bytes(behind)

    def find(self, folder: Path, since: float = 0.0) -> Absences:
        return FlightRecorders().find_absences([member(folder), member(folder, 1)], since)

    def test_each_rank_has_its_own(self, tmp_path: Path) -> None:
        self.write(tmp_path)
        assert self.find(tmp_path).absent == {1: "all_reduce 8"}

    def test_one_of_an_earlier_silence_says_nothing(self, tmp_path: Path) -> None:
        self.write(tmp_path)
        assert self.find(tmp_path, since=time.time() + 60) == NO_ABSENCES

    def test_one_of_an_earlier_process_says_nothing(self, tmp_path: Path) -> None:
        self.write(tmp_path)
        os.utime(tmp_path / "trace_1", (1000, 1000))
        assert self.find(tmp_path) == NO_ABSENCES

    def test_a_large_one_is_left_out(self, tmp_path: Path) -> None:
        self.write(tmp_path)
        with (tmp_path / "trace_1").open("ab") as file:
            file.write(bytes(flight_recorder.MAX_BYTES))
        assert self.find(tmp_path) == NO_ABSENCES

    def test_a_pipe_in_its_place_does_not_block(self, tmp_path: Path) -> None:
        self.write(tmp_path)
        (tmp_path / "trace_1").unlink()
        os.mkfifo(tmp_path / "trace_1")
        assert self.find(tmp_path) == NO_ABSENCES

    def test_a_dump_that_takes_too_long_is_left_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.write(tmp_path)
        monkeypatch.setattr(flight_recorder, "READ_SECONDS", 0.0)
        assert self.find(tmp_path) == NO_ABSENCES

    def test_a_dump_that_is_written_again_is_read_again(self, tmp_path: Path) -> None:
        recorders, ranks = FlightRecorders(), [member(tmp_path), member(tmp_path, 1)]
        self.write(tmp_path)
        assert recorders.find_absences(ranks, 0.0).absent
        (tmp_path / "trace_1").write_bytes(pickle.dumps(dump(entry(8))))
        os.utime(tmp_path / "trace_1", (time.time() + 1,) * 2)
        assert not recorders.find_absences(ranks, 0.0).absent

    def test_what_they_show_is_described_with_their_age(self, tmp_path: Path) -> None:
        ranks = [member(tmp_path), member(tmp_path, 1)]
        now = time.time() + 3700
        assert FlightRecorders().describe(ranks, now) == ""
        self.write(tmp_path)
        for at, age in enumerate((200, 3670)):
            os.utime(tmp_path / f"trace_{at}", (now - age,) * 2)
        assert FlightRecorders().describe(ranks, now) == (
            "Flight Recorder: 2 dumps, written 1 h 1 min ago or later:"
            " rank 1 has not entered all_reduce 8"
        )
        (tmp_path / "trace_1").write_bytes(pickle.dumps(dump(entry(8))))
        assert FlightRecorders().describe(ranks, now).endswith("of these ranks, none is behind")

    def test_the_rank_that_enters_last_is_described(self, tmp_path: Path) -> None:
        for rank in (0, 1):
            entries = (
                entry(number, time_created_ns=number * 10**9 + rank * 3 * 10**8)
                for number in range(1, 21)
            )
            (tmp_path / f"trace_{rank}").write_bytes(pickle.dumps(dump(*entries)))
        described = FlightRecorders().describe([member(tmp_path), member(tmp_path, 1)], time.time())
        assert described.endswith(
            "none is behind, rank 1 entered 20 of 20 collectives last, 0.3 s late"
        )


class TestPipe:
    def test_a_dump_is_asked_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe_0.pipe")
        reader = os.open(tmp_path / "pipe_0.pipe", os.O_RDONLY | os.O_NONBLOCK)
        try:
            FlightRecorders().ask([member(tmp_path), member(tmp_path, 1)])
            assert os.read(reader, 100) == b"1\n"
        finally:
            os.close(reader)

    def test_that_nobody_reads_does_not_block(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe_0.pipe")
        FlightRecorders().ask([member(tmp_path)])

    def test_a_file_in_its_place_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "pipe_0.pipe").write_text("kept")
        FlightRecorders().ask([member(tmp_path)])
        assert (tmp_path / "pipe_0.pipe").read_text() == "kept"
