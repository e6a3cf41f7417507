"""What a person is told, and the form in which each kind of receiver takes it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.remediator.conftest import NOW

from trainwarden_remediator.notifying.forms import cut, request
from trainwarden_remediator.notifying.messages import (
    TITLES,
    TOGETHER,
    VALUE_LENGTH,
    Message,
    Notice,
    bare,
    message,
    occasion,
    subject,
    trial,
)
from trainwarden_remediator.notifying.models import Kind, Occasion
from trainwarden_remediator.records import Event

KINDS: tuple[Kind, ...] = ("slack", "discord", "mattermost", "ntfy", "json")
NASTY = "<!channel> @everyone [a](https://evil.example) `**x**` &lt; \x1b[31m\r\nTitle: no"


def event(kind: str = "decision", **changes: Any) -> Event:
    facts: dict[str, Any] = {"verdict": "refuse", "reason": "attempts_exhausted"}
    given: dict[str, Any] = {
        "id": 7,
        "at": NOW,
        "incident": 3,
        "action": None,
        "kind": kind,
        "alert": "TrainingWorkerGone",
        "run": "demo",
        "worker": "rollout-0",
        "facts": facts,
        **changes,
    }
    return Event(**given)


def notice(told: Occasion = "gave_up", number: int = 1, **changes: Any) -> Notice:
    tried = (("restart", "not_healed"), ("restart", "not_healed"))
    return Notice(number, "ops", told, event(**changes), tried)


def composed(*notices: Notice, mode: str = "act") -> Message:
    return message(notices or (notice(),), box="box-1", mode=mode)


def text_of(kind: Kind, told: Message) -> str:
    """What a person reads, as the receiver takes it."""
    body = request(kind, told).body
    if kind == "ntfy":
        return body.decode()
    content = json.loads(body)
    if kind == "slack":
        return str(content["blocks"][0]["text"]["text"])
    return str(content.get("content") or content.get("text") or json.dumps(content))


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (event(facts={"reason": "attempts_exhausted"}), "gave_up"),
        (event(facts={"reason": "no_checkpoint"}), "gave_up"),
        (event(facts={"reason": "hold"}), "held"),
        (event(facts={"reason": "held"}), None),
        (event(facts={"reason": "cooldown"}), None),
        (event("breaker"), "breaker"),
        (event("asked"), "asked"),
        (event("intent", action=4), "acted"),
        (event("outcome", facts={"outcome": "healed"}), "healed"),
        (event("outcome", facts={"outcome": "not_healed"}), "not_healed"),
        (event("alert"), None),
    ],
)
def test_only_what_a_person_would_want_to_hear_is_an_occasion(
    told: Event, expected: Occasion | None
) -> None:
    assert occasion(told) == expected


def test_an_action_is_told_of_each_time_an_incident_once_and_a_breaker_each_time() -> None:
    assert subject("acted", event(action=4)) != subject("acted", event(action=5))
    assert subject("gave_up", event(id=1)) == subject("gave_up", event(id=2))
    assert subject("breaker", event(id=1)) != subject("breaker", event(id=2))


@pytest.mark.parametrize("kind", KINDS)
def test_every_form_says_what_why_where_and_what_was_tried(kind: Kind) -> None:
    text = text_of(kind, composed())
    for words in (
        "gave up, a person is needed",
        "TrainingWorkerGone",
        "demo/rollout-0",
        "no attempts left",
        "restart not healed, 2 times",
        "2027-01-15 08:00:00 UTC",
        "#3",
        "box-1",
    ):
        assert words in text, words


@pytest.mark.parametrize("kind", KINDS)
def test_who_only_observes_says_so(kind: Kind) -> None:
    assert "nothing is touched" in text_of(kind, composed(mode="observe"))
    assert "nothing is touched" not in text_of(kind, composed())


@pytest.mark.parametrize("kind", KINDS)
def test_what_came_with_an_alert_stands_in_no_header_and_on_one_line(kind: Kind) -> None:
    told = composed(notice(alert=NASTY))
    sent = request(kind, told)
    assert all(value.isprintable() and value.isascii() for value in sent.headers.values())
    assert not any("evil" in value for value in sent.headers.values())
    assert "\x1b" not in sent.body.decode()
    (line,) = [line for line in text_of(kind, told).splitlines() if line.startswith("Alert")] or [
        text_of(kind, told)
    ]
    assert "Title: no" in line


@pytest.mark.parametrize("kind", ["discord", "mattermost"])
def test_where_markup_is_read_a_value_is_code_that_it_cannot_end(kind: Kind) -> None:
    text = text_of(kind, composed(notice(alert=NASTY)))
    (line,) = (line for line in text.splitlines() if line.startswith("Alert: "))
    value = line.removeprefix("Alert: ")
    assert value.startswith("`")
    assert value.endswith("`")
    assert "`" not in value[1:-1]
    assert "@everyone" in value


def test_slack_shows_values_in_plain_text_only() -> None:
    content = json.loads(request("slack", composed(notice(alert=NASTY))).body)
    assert content["blocks"][0]["text"]["type"] == "plain_text"
    assert "<!channel>" in content["blocks"][0]["text"]["text"]
    assert "channel" not in content["text"]


def test_discord_is_told_to_call_nobody_by_an_at() -> None:
    content = json.loads(request("discord", composed()).body)
    assert content["allowed_mentions"] == {"parse": []}


def test_ntfy_is_urgent_when_a_person_is_needed_and_not_otherwise() -> None:
    assert request("ntfy", composed()).headers["Priority"] == "urgent"
    healed = notice("healed", kind="outcome", facts={"outcome": "healed", "seconds": 4})
    assert request("ntfy", composed(healed)).headers["Priority"] == "default"


LIMITS: dict[Kind, int] = {"slack": 3000, "discord": 2000, "mattermost": 16383, "ntfy": 4096}


@pytest.mark.parametrize("kind", LIMITS)
def test_a_message_is_never_longer_than_its_receiver_takes(kind: Kind) -> None:
    # Two bytes and one UTF-16 unit each: ntfy counts bytes.
    storm = [notice("gave_up", n, alert="\u00e4" * 5000, run="r" * 900) for n in range(50)]
    text = text_of(kind, composed(*storm))
    assert len(text.encode() if kind == "ntfy" else text) <= LIMITS[kind]
    assert text.startswith(("Trainwarden", "**Trainwarden**"))
    assert text.count("`") % 2 == 0


def test_many_things_are_one_message_the_pressing_ones_first() -> None:
    healed = [
        notice("healed", n, kind="outcome", facts={"outcome": "healed", "seconds": 4})
        for n in range(20)
    ]
    told = composed(*healed, notice("gave_up", 99))
    assert told.title == "21 things to tell"
    assert told.items[0].title == TITLES["gave_up"]
    assert (len(told.items), told.left_out) == (TOGETHER, 21 - TOGETHER)
    assert "and 13 more" in text_of("slack", told)


def test_a_value_is_cut_and_says_so() -> None:
    (item,) = composed(notice(alert="x" * 5000)).items
    assert len(item.values["Alert"]) == VALUE_LENGTH
    assert item.values["Alert"].endswith("…")


def test_a_bare_message_holds_nothing_but_words_of_our_own() -> None:
    told = bare(composed(notice(alert="TrainingX")))
    assert "TrainingX" not in text_of("json", told)
    assert "gave up" in text_of("slack", told)


def test_a_trial_says_that_nothing_is_wrong() -> None:
    assert "nothing is wrong" in text_of("slack", trial(box="b"))


def test_a_text_of_one_long_line_is_cut_with_its_span_closed() -> None:
    assert cut("`" + "x" * 100, 20, "`").count("`") == 2
    assert cut("a\nb", 20) == "a\nb"
