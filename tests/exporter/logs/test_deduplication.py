from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from trainwarden_exporter.logs.deduplication import DeduplicationGroups, LineDeduplicator

Line = tuple[str, str, str]  # log, place, text


def count(lines: list[Line], copies: LineDeduplicator | None = None) -> int:
    copies = copies or LineDeduplicator()
    return sum(copies.add(log, place, "refused", text) for log, place, text in lines)


def true_count(lines: list[Line]) -> int:
    """What the lines come to: for each text, where it stands most often."""
    places = {(log, place) for log, place, _ in lines}
    texts = {text for *_, text in lines}
    return sum(max(lines.count((*where, text)) for where in places) for text in texts)


def test_sixty_four_lines_in_two_logs_are_sixty_four() -> None:
    trainer = [("trainer", "trainer.log", "ConnectionRefusedError(111)")] * 64
    wandb = [("wandb", "wandb/output.log", "ConnectionRefusedError(111)")] * 64
    assert count(trainer + wandb) == 64
    assert count(wandb + trainer) == 64
    assert count([line for pair in zip(trainer, wandb, strict=True) for line in pair]) == 64


def test_a_line_that_stands_twice_in_one_log_counts_twice() -> None:
    assert count([("a", "a", "x"), ("b", "b", "x"), ("a", "a", "x")]) == 2


def test_what_stands_in_one_alone_counts_too() -> None:
    assert count([("a", "a", "x"), ("b", "b", "y")]) == 2


def test_other_kinds_of_line_are_apart() -> None:
    copies = LineDeduplicator()
    assert copies.add("a", "a", "error", "x") == 1
    assert copies.add("b", "b", "timeout", "x") == 1


LINES = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from("pq"), st.sampled_from("xyz")), max_size=40
)


@given(LINES, st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(lines: list[Line], order: random.Random) -> None:
    shuffled = lines.copy()
    order.shuffle(shuffled)
    assert count(lines) == count(shuffled) == true_count(lines)


@given(LINES, st.integers(0, 40), st.integers(0, 40), st.sampled_from("ab"))
def test_what_one_log_had_saved_earlier_is_read_again_and_not_counted_again(
    lines: list[Line], saved: int, crash: int, late: str
) -> None:
    """Each log is saved on its own, at another moment; after a crash each reads from there."""
    saved, crash = min(saved, crash, len(lines)), min(crash, len(lines))
    copies, counts, parts = LineDeduplicator(), {"a": 0, "b": 0}, {}
    for number, (log, place, text) in enumerate(lines[:crash]):
        if number == saved:
            parts[late] = (copies.state_of(late), counts[late])
        counts[log] += copies.add(log, place, "kind", text)
    early = "b" if late == "a" else "a"
    parts[early] = (copies.state_of(early), counts[early])
    if late not in parts:
        parts[late] = (copies.state_of(late), counts[late])

    copies, counts = LineDeduplicator(), {}
    for log, (part, counted) in parts.items():
        copies.restore(log, part)
        counts[log] = counted
    again = [line for line in lines[saved:crash] if line[0] == late] + lines[crash:]
    for log, place, text in again:
        counts[log] += copies.add(log, place, "kind", text)
    assert sum(counts.values()) == true_count(lines)


def test_memory_is_bounded_by_forgetting_what_came_longest_ago() -> None:
    copies = LineDeduplicator(most=10)
    for number in range(100):
        copies.add("a", "a", "k", str(number))
    assert len(copies.state_of("a")) == 10
    assert copies.add("b", "b", "k", "99") == 0
    assert copies.add("b", "b", "k", "5") == 1


def test_each_word_of_each_run_has_its_own() -> None:
    groups = DeduplicationGroups()
    assert groups.group("run", "x") is groups.group("run", "x")
    assert groups.group("run", "x") is not groups.group("run", "y")
    assert groups.group("run", "x") is not groups.group("other", "x")
