from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainwarden_exporter.logs.line_blocks import LineBlock, parse_block


def lines(block: LineBlock) -> list[bytes]:
    return [line for line in bytes(block.text[block.start : block.end]).split(b"\n") if line]


def parse(data: bytes, *, limit: int = 100, last: bool = True, skipping: bool = False) -> LineBlock:
    return parse_block(data, 0, len(data), last=last, limit=limit, skipping=skipping)


def test_a_line_is_left_until_it_is_complete() -> None:
    block = parse(b"one\ntwo\nthr")
    assert (lines(block), block.used_bytes) == ([b"one", b"two"], 8)
    assert parse(b"thr").used_bytes == 0


def test_a_progress_bar_draws_lines() -> None:
    block = parse(b" 10%|#  |\r 20%|## |\r 30%|")
    assert (lines(block), block.used_bytes) == ([b" 10%|#  |", b" 20%|## |"], 20)


def test_windows_ends_lines_too() -> None:
    assert lines(parse(b"one\r\ntwo\r\n")) == [b"one", b"two"]


def test_nuls_at_the_end_of_a_file_are_not_written_yet() -> None:
    block = parse(b"one\n\0\0\0\0")
    assert (lines(block), block.used_bytes) == ([b"one"], 4)
    assert parse(b"\0\0\0\0").used_bytes == 0


def test_nuls_before_a_line_are_no_part_of_it() -> None:
    assert lines(parse(b"\0\0\0one\ntwo\n")) == [b"one", b"two"]
    block = parse(b"\0" * 1000, last=False)
    assert (lines(block), block.used_bytes, block.truncated_lines) == ([], 1000, 0)


def test_colours_are_taken_out() -> None:
    block = parse(b"\x1b[31mError\x1b[0m: x\n\x1b[3")
    assert (lines(block), block.used_bytes) == ([b"Error: x"], 18)


def test_a_line_without_end_is_cut_and_its_rest_passed_over() -> None:
    block = parse(b"x" * 150)
    assert (lines(block), block.used_bytes, block.skipping, block.truncated_lines) == (
        [b"x" * 100],
        150,
        True,
        1,
    )
    block = parse(b"y" * 150, skipping=True)
    assert (lines(block), block.used_bytes, block.skipping, block.truncated_lines) == (
        [],
        150,
        True,
        0,
    )
    block = parse(b"yyy\nnext\n", skipping=True)
    assert (lines(block), block.used_bytes, block.skipping) == ([b"next"], 9, False)


def test_a_long_line_among_others_is_cut_to_the_same() -> None:
    block = parse(b"one\n" + b"x" * 101 + b"\n" + b"y" * 100 + b"\nlast\n")
    assert lines(block) == [b"one", b"x" * 100, b"y" * 100, b"last"]
    assert block.truncated_lines == 1


def test_lines_that_begin_at_the_edge_are_left() -> None:
    data = b"one\ntwo\nthree\n"
    for edge, used in (
        (4, 4),
        (5, 4),
        (8, 8),
        (1, 4),
        (3, 4),
        (14, 14),
        (99, 14),
        (-1, 14),
        (0, 14),
    ):
        assert parse_block(data, 0, len(data), last=True, limit=100, edge=edge).used_bytes == used


def test_what_stands_before_the_start_is_no_part_of_it() -> None:
    block = parse_block(b"old\nnew\nolder\n", 4, 8, last=True, limit=100)
    assert (lines(block), block.used_bytes) == ([b"new"], 4)


@given(
    st.lists(
        st.one_of(
            st.sampled_from([b"\n", b"\r", b"\x1b[1m", b"ab", b"x" * 30]),
            st.binary(max_size=4),
        ),
        max_size=60,
    ),
    st.lists(st.integers(1, 60), min_size=1, max_size=20),
)
def test_lines_are_the_same_in_whatever_pieces_they_come(
    parts: list[bytes], sizes: list[int]
) -> None:
    # NULs at an end wait for what follows; so something does.
    content = b"".join(parts).replace(b"\x1b", b"") + b"end\n"
    whole = parse_block(content, 0, len(content), last=True, limit=40)
    assert whole.used_bytes == len(content)

    found: list[bytes] = []
    offset, end, skipping, turn = 0, 0, False, 0
    while offset < len(content):
        end = min(len(content), end + sizes[turn % len(sizes)])
        turn += 1
        # As in a buffer, where other things stand around it.
        block = parse_block(content, offset, end, last=True, limit=40, skipping=skipping)
        found += lines(block)
        offset, skipping = offset + block.used_bytes, block.skipping
    assert found == lines(whole)
