from __future__ import annotations

import re
import time

import pytest

from trainwarden_exporter.logs.re2_patterns import RegexSet, check_regex, group_names


@pytest.mark.parametrize(
    ("regex", "reason"),
    [
        ("(abc", "not a regular expression of RE2: missing ): (abc"),
        ("(?<=a)b", "not a regular expression of RE2: invalid perl operator: (?<="),
        (r"(a)\1", r"not a regular expression of RE2: invalid escape sequence: \1"),
        (r"\Qabc", "not a regular expression of RE2: missing ): (?m:\\Qabc)"),
        (r"\Aerror", r"\A has no meaning in a line: write ^ and $ for its ends"),
        (r"error\z", r"\z has no meaning in a line: write ^ and $ for its ends"),
        ("x*", "matches an empty line, and so every line"),
        ("error|", "matches an empty line, and so every line"),
    ],
)
def test_what_cannot_be_searched_for_is_refused_with_the_reason(regex: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        check_regex(regex)


@pytest.mark.parametrize("regex", [r"\\A", "(?i)oom", r"✨ step (?P<step>\d+)", "a|(b)", r"\[Az\]"])
def test_what_can_be_searched_for_is_itself(regex: str) -> None:
    assert check_regex(regex) == regex


def test_groups_are_known_by_name() -> None:
    assert group_names(r"(?P<step>\d+) (x) (?P<loss>\S+)") == {"step", "loss"}


def test_no_match_crosses_the_end_of_a_line() -> None:
    regexes = RegexSet([r"begin[^!]*!", r"a\s+b", "^first$"])
    text = b"begin\nno!\na\nb\nfirst\n"
    assert regexes.find(text, 0, len(text)) == text.index(b"first")
    assert regexes.find(text, 0, text.index(b"first")) is None


def test_what_matches_a_line_is_reported_in_order() -> None:
    regexes = RegexSet(["x", "l[io]ne$", "(?P<word>l.)(?P<none>q)?"])
    assert regexes.matching(b"a line") == [1, 2]
    assert regexes.groups(2, b"a line") == {"word": "li"}


def test_bytes_that_are_no_text_hinder_nothing() -> None:
    regexes = RegexSet(["error .* here"])
    line = b"\xff\xfe error \x80\x81 here"
    assert regexes.find(line, 0, len(line)) == 3
    assert regexes.matching(line) == [0]


def test_text_beyond_ascii_is_searched_as_utf_8() -> None:
    regexes = RegexSet(["[✨→]+ step (?P<word>.)"])
    line = "x ✨ step é".encode()
    assert regexes.find(line, 0, len(line)) == 2
    assert regexes.groups(0, line) == {"word": "é"}


def test_no_expression_can_hang() -> None:
    regexes = RegexSet([check_regex(r"(a+)+$"), check_regex(r"(x+x+)+y")])
    line = b"a" * 50_000 + b"x" * 50_000
    began = time.process_time()
    assert regexes.find(line, 0, len(line)) is None
    assert time.process_time() - began < 1


def test_too_much_at_once_is_refused() -> None:
    with pytest.raises(ValueError, match="too much to search for at once"):
        RegexSet([r"(\pL{500}){1,2}" + str(number) for number in range(200)])
