from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwarden_remediator.report.markdown import (
    code,
    collapsible,
    fence,
    for_terminal,
    link,
    table,
    text,
)


@given(st.text())
def test_text_is_one_line_that_begins_nothing(given_text: str) -> None:
    message = text(given_text)
    assert len(message.splitlines()) <= 1
    assert not re.match(r"\s*([#>+=-]|\d+[.)]|```|~~~|\|)", message)
    assert "<" not in message
    outside = re.sub(r"(?<![\\`])(`+)(?!`)[^`]+(?<!`)\1(?!`)", "", message.replace("\\`", ""))
    assert "`" not in outside
    assert all(c.isprintable() for c in message)


@given(st.lists(st.text()))
def test_a_fence_is_closed_by_nothing_within(lines: list[str]) -> None:
    opening, *content, closing = fence(lines).split("\n")
    ticks = opening.removesuffix("text")
    assert closing == ticks
    assert set(ticks) == {"`"}
    assert len(content) == len(lines)
    assert not any(ticks in line for line in content)


@given(st.text())
def test_code_is_one_span_and_breaks_no_table(given_text: str) -> None:
    message = code(given_text)
    assert len(message.splitlines()) <= 1
    assert "|" not in message
    if message:
        ticks = message[: len(message) - len(message.lstrip("`"))]
        assert message.endswith(ticks)
        assert ticks not in message[len(ticks) : -len(ticks)].strip("`") or "`" not in given_text


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("# heading", r"\# heading"),
        ("it has `--restart never` #3", "it has `--restart never` #3"),
        ("waiting_for_rollouts, _so_", r"waiting_for_rollouts, \_so\_"),
        ("`a`` | `<b>", r"`a`\` \| \`&lt;b&gt;"),
        ("` ` `](x)`", r"\` \` `](x)`"),
        ("- point\n- point", r"\- point - point"),
        ("1. first", r"1\. first"),
        ("<script>", "&lt;script&gt;"),
        ("a|b [x](y)", r"a\|b \[x\](y)"),
        ("</details>", "&lt;/details&gt;"),
        ("\x1b[2J", "\N{REPLACEMENT CHARACTER}\\[2J"),
    ],
)
def test_what_would_be_markdown_stays_text(hostile: str, harmless: str) -> None:
    assert text(hostile) == harmless


def test_a_link_is_one_only_where_it_is_a_web_address() -> None:
    assert link("https://example.org/a#b") == "<https://example.org/a#b>"
    for other in ("javascript:alert(1)", "https://a.b/> <script>", "/d/board", "https://a b"):
        assert not link(other).startswith("<")


def test_a_fold_and_a_table_hold_their_content() -> None:
    assert collapsible("</summary>", "x").count("</summary>") == 1
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n|---|---|\n| 1 | 2 |"


def test_in_a_terminal_no_text_is_escaped_for_html_and_a_runbook_is_its_command() -> None:
    url = "https://github.com/trainwarden/trainwarden/blob/main/docs/runbooks/"
    shown = for_terminal(
        f"It waits in {text('<module> & <b>')}.\n"
        f"- Runbook: <{url}TrainingWorkerGone.md> and (<{url}OfAnother.md>)\n"
        "```text\nas it &lt;was&gt;\n```\n&#27;[2J &lt;x&gt;\n"
    )
    assert shown == (
        "It waits in <module> & <b>.\n"
        f"- Runbook: `trainwarden runbook TrainingWorkerGone` and (<{url}OfAnother.md>)\n"
        "```text\nas it &lt;was&gt;\n```\n&#27;[2J <x>\n"
    )
