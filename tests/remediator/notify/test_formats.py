"""The text of a notification, and its format for each kind of receiver."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.remediator.samples import NOW

from trainwarden_remediator.config.notifications import NotificationEvent, ReceiverKind
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.journal.evidence_text import FaultFacts
from trainwarden_remediator.journal.rows import Event
from trainwarden_remediator.notify.classification import (
    deduplication_key,
    notification_event_of,
    subject_of,
)
from trainwarden_remediator.notify.formats import build_request, truncate
from trainwarden_remediator.notify.messages import (
    MAX_ITEMS,
    TITLES,
    VALUE_LENGTH,
    Message,
    Notification,
    build_message,
    build_trial_message,
    without_values,
)

KINDS: tuple[ReceiverKind, ...] = ("slack", "discord", "mattermost", "ntfy", "json")
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


def notification(
    reported: NotificationEvent = "gave_up", number: int = 1, **changes: Any
) -> Notification:
    tried = (("restart", "not_healed"), ("restart", "not_healed"))
    return Notification(number, "ops", reported, event(**changes), tried)


def composed(*notifications: Notification, mode: str = "act") -> Message:
    return build_message(notifications or (notification(),), instance="box-1", mode=mode)


def text_of(kind: ReceiverKind, reported: Message) -> str:
    """The text that the on-call reads, in the format of the receiver."""
    body = build_request(kind, reported).body
    if kind == "ntfy":
        return body.decode()
    content = json.loads(body)
    if kind == "slack":
        return str(content["blocks"][0]["text"]["text"])
    return str(content.get("content") or content.get("text") or json.dumps(content))


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        (event(facts={"reason": "attempts_exhausted"}), "gave_up"),
        (event(facts={"reason": "no_checkpoint"}), "gave_up"),
        (event(facts={"reason": "hold"}), "held_by_alert"),
        (event(facts={"reason": "held"}), None),
        (event(facts={"reason": "cooldown"}), None),
        (event("breaker_opened"), "breaker_opened"),
        (event("paged"), "paged"),
        (event("intent", action=4), "action_started"),
        (event("outcome", facts={"outcome": "healed"}), "healed"),
        (event("outcome", facts={"outcome": "not_healed"}), "not_healed"),
        (event("alert"), None),
        (event("run_finished"), "finished"),
        (event("finished"), None),
    ],
)
def test_only_what_an_operator_would_want_to_hear_is_an_occasion(
    reported: Event, expected: NotificationEvent | None
) -> None:
    assert notification_event_of(reported) == expected


def test_an_action_is_reported_once_and_another_event_each_time() -> None:
    assert deduplication_key(event("intent", action=4)) != deduplication_key(
        event("intent", action=5)
    )
    assert deduplication_key(event(id=1)) != deduplication_key(event(id=2))
    assert subject_of(event(id=1)) == subject_of(event(id=2))
    assert subject_of(event()) != subject_of(event(facts={"reason": "no_checkpoint"}))
    assert deduplication_key(event(id=1)) != deduplication_key(event(id=2))


@pytest.mark.parametrize("kind", KINDS)
def test_every_form_says_what_why_where_and_what_was_tried(kind: ReceiverKind) -> None:
    text = text_of(kind, composed())
    for words in (
        "incident abandoned, operator needed",
        "You, now",
        "TrainingWorkerGone",
        "demo/rollout-0",
        "no attempts left",
        "restart not healed, 2 times",
        "2027-01-15 08:00:00 UTC",
        "#3",
        "box-1",
    ):
        assert words in text, words


def test_every_message_says_who_acts_and_a_hold_is_who_set_it() -> None:
    def who(reported: NotificationEvent, *holds: Hold) -> str:
        one = notification(reported)
        (item,) = build_message([one], instance="b", mode="act", holds=holds).items
        return item.values["Who acts"]

    assert next(iter(composed().items[0].values)) == "Who acts"
    assert [who(one) for one in ("action_started", "healed", "finished", "not_healed")] == [
        "The remediator",
        "Nobody needs to",
        "Nobody needs to",
        "The remediator",
    ]
    ann = Hold(run="demo", who="ann", until=NOW + 3600)
    assert who("blocked", ann) == "ann, until 09:00 UTC"
    assert who("blocked", Hold(run="sft", who="ann")) == who("blocked") == "You, now"
    assert who("healed", ann) == "Nobody needs to"
    ended = event(facts={"verdict": "wait", "reason": "managed_elsewhere"})
    one = replace(notification("blocked"), event=ended)
    (item,) = build_message([one], instance="b", mode="act", holds=[ann]).items
    assert item.values["Who acts"] == "You, now", "no action follows the end of the hold"


def test_a_command_that_goes_on_unwatched_is_not_reported_as_finished() -> None:
    reported = replace(event("run_finished"), facts={"goes_on": 2, "step": 1})
    one = replace(notification("finished"), event=reported)
    message = build_message([one], instance="b", mode="act")
    (item,) = message.items
    assert message.title == "a command has ended, and its processes go on unwatched"
    assert item.values["Who acts"] == "You, now"
    assert item.values["What"].startswith("its command has ended, and 2 processes of it go on")


def test_a_run_that_has_perhaps_failed_asks_you_and_names_its_error() -> None:
    facts: dict[str, Any] = {"step": 35, "total": 400}
    early = replace(notification("finished"), event=replace(event("run_finished"), facts=facts))
    error = {"last_error": "ConnectionError: no bucket", "log": "/l", "start": "trainwarden run"}
    facts = {**facts, "perhaps_failed": True, **error}
    one = replace(notification("finished"), event=replace(event("run_finished"), facts=facts))
    message = build_message([one], instance="i", mode="act")
    assert message.title == "a run has ended, and perhaps failed"
    (item,) = message.items
    assert (item.values["Who acts"], message.calls) == ("You, now", True)
    assert item.values["What"] == (
        "the run has ended early at step 35 of 400 with exit status 0, and has perhaps failed: an"
        " error was printed last"
    )
    assert item.values["Last error"] == "ConnectionError: no bucket"
    assert (item.values["Log"], item.values["Start again"]) == ("/l", "trainwarden run")
    quiet = build_message([early], instance="i", mode="act")
    assert (quiet.items[0].values["Who acts"], quiet.calls) == ("Nobody needs to", False)


def test_a_finished_run_whose_server_still_runs_asks_you_to_end_it() -> None:
    facts = {"step": 1, "still_run": ["server"], "stop": "trainwarden stop rl"}
    one = replace(notification("finished"), event=replace(event("run_finished"), facts=facts))
    (item,) = build_message([one], instance="b", mode="act").items
    assert item.values["Who acts"] == "You, now"
    assert item.values["What"].endswith("; server still runs: `trainwarden stop rl` ends it")


@pytest.mark.parametrize("kind", KINDS)
def test_who_only_observes_says_so(kind: ReceiverKind) -> None:
    first = replace(notification(), attempts=())
    assert "no actions are taken" in text_of(kind, composed(first, mode="observe"))
    assert "no actions are taken" not in text_of(kind, composed())


@pytest.mark.parametrize("kind", KINDS)
def test_what_came_with_an_alert_stands_in_no_header_and_on_one_line(kind: ReceiverKind) -> None:
    reported = composed(notification(alert=NASTY))
    sent = build_request(kind, reported)
    assert all(value.isprintable() and value.isascii() for value in sent.headers.values())
    assert not any("evil" in value for value in sent.headers.values())
    assert "\x1b" not in sent.body.decode()
    (line,) = [
        line for line in text_of(kind, reported).splitlines() if line.startswith("Alert")
    ] or [text_of(kind, reported)]
    assert "Title: no" in line


@pytest.mark.parametrize("kind", ["discord", "mattermost"])
def test_where_markup_is_read_a_value_is_code_that_it_cannot_end(kind: ReceiverKind) -> None:
    text = text_of(kind, composed(notification(alert=NASTY)))
    (line,) = (line for line in text.splitlines() if line.startswith("Alert: "))
    value = line.removeprefix("Alert: ")
    assert value.startswith("`")
    assert value.endswith("`")
    assert "`" not in value[1:-1]
    assert "@everyone" in value


def test_slack_shows_values_in_plain_text_only() -> None:
    content = json.loads(build_request("slack", composed(notification(alert=NASTY))).body)
    assert content["blocks"][0]["text"]["type"] == "plain_text"
    assert "<!channel>" in content["blocks"][0]["text"]["text"]
    assert "channel" not in content["text"]


def test_discord_messages_mention_nobody() -> None:
    content = json.loads(build_request("discord", composed()).body)
    assert content["allowed_mentions"] == {"parse": []}


@pytest.mark.parametrize(
    ("event_kind", "facts", "shown"),
    [
        ("run_finished", {"still_run": ["server"], "stop": "s", "rings": True}, ("default", True)),
        ("run_finished", {"still_run": ["server"], "stop": "s", "rings": False}, ("low", False)),
        ("run_finished", {"finite_until": 5}, ("default", True)),
        ("run_finished", {}, ("low", False)),
        ("stalled", {"alert": "A", "handling": "waits", "halted": "prompt"}, ("default", True)),
        ("stalled", {"alert": "A", "handling": "acts"}, ("low", False)),
    ],
)
def test_what_says_that_you_act_rings_at_each_kind_of_receiver(
    event_kind: str, facts: dict[str, Any], shown: tuple[str, bool]
) -> None:
    occasion: NotificationEvent = "finished" if event_kind == "run_finished" else "stalled"
    one = replace(notification(occasion), event=replace(event(event_kind), facts=facts))
    message = build_message([one], instance="b", mode="act")
    content = json.loads(build_request("json", message).body)
    assert (build_request("ntfy", message).headers["Priority"], content["rings"]) == shown
    assert (content["items"][0]["who_acts"] == "You, now") == content["rings"]
    assert not content["urgent"]


def test_ntfy_is_urgent_when_an_operator_is_needed_and_not_otherwise() -> None:
    assert build_request("ntfy", composed()).headers["Priority"] == "urgent"
    healed = notification("healed", kind="outcome", facts={"outcome": "healed", "seconds": 4})
    assert build_request("ntfy", composed(healed)).headers["Priority"] == "low"


def test_ntfy_rings_for_a_run_that_was_halted_by_hand_and_not_for_another_that_stalls() -> None:
    facts: dict[str, Any] = {"fingerprint": "a", "alert": "TrainingStepStalled"}
    stalls: dict[str, Any] = {"kind": "stalled", "incident": None}
    halted = notification("stalled", **stalls, facts=facts | {"halted": "it waits at a prompt"})
    moves = facts | {"handling": "it is restarted"}
    waiting = notification("stalled", 0, **stalls, facts=moves, run="other")
    both = composed(waiting, replace(halted, id=9))
    assert both.title == f"{composed(halted).title} (and 1 more)"
    shown = composed(halted)
    assert shown.items[0].values["Who acts"] == "You, now"
    assert build_request("ntfy", shown).headers["Priority"] == "default"
    assert build_request("ntfy", without_values(shown)).headers["Priority"] == "default"
    waits = notification("stalled", **stalls, facts=facts | {"handling": "it is restarted"})
    assert build_request("ntfy", composed(waits)).headers["Priority"] == "low"


LIMITS: dict[ReceiverKind, int] = {
    "slack": 3000,
    "discord": 2000,
    "mattermost": 16383,
    "ntfy": 4096,
}


@pytest.mark.parametrize("kind", LIMITS)
def test_a_message_is_never_longer_than_its_receiver_takes(kind: ReceiverKind) -> None:
    # Two bytes and one UTF-16 unit each: ntfy counts bytes.
    storm = [notification("gave_up", n, alert="\u00e4" * 5000, run="r" * 900) for n in range(50)]
    text = text_of(kind, composed(*storm))
    assert len(text.encode() if kind == "ntfy" else text) <= LIMITS[kind]
    assert text.startswith(("Trainwarden", "**Trainwarden**"))
    assert text.count("`") % 2 == 0


def test_many_things_are_one_message_the_pressing_ones_first() -> None:
    facts = {"outcome": "healed", "seconds": 4}
    healed = [
        notification("healed", n, kind="outcome", facts=facts, incident=n + 10) for n in range(20)
    ]
    reported = composed(*healed, notification("gave_up", 99))
    assert reported.title == f"{TITLES['gave_up']} (and 20 more)"
    assert reported.items[0].title == TITLES["gave_up"]
    assert (len(reported.items), reported.left_out) == (MAX_ITEMS, 21 - MAX_ITEMS)
    assert "and 13 more" in text_of("slack", reported)


def test_a_value_is_cut_and_says_so() -> None:
    (item,) = composed(notification(alert="x" * 5000)).items
    assert len(item.values["Alert"]) == VALUE_LENGTH
    assert item.values["Alert"].endswith("…")


def test_a_bare_message_holds_nothing_but_words_of_our_own() -> None:
    reported = without_values(composed(notification(alert="TrainingX")))
    assert "TrainingX" not in text_of("json", reported)
    assert "incident abandoned" in text_of("slack", reported)


def test_a_test_message_has_no_problem_to_report() -> None:
    assert "nobody needs to act" in text_of("slack", build_trial_message(instance="b"))
    trial = build_trial_message(instance="b")
    assert build_request("ntfy", trial).headers["Priority"] == "urgent"
    assert json.loads(build_request("json", trial).body)["rings"]


def test_a_text_of_one_long_line_is_cut_with_its_span_closed() -> None:
    assert truncate("`" + "x" * 100, 20, "`").count("`") == 2
    assert truncate("a\nb", 20) == "a\nb"


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_for_an_operator_has_the_cause_the_last_error_and_the_log(
    kind: ReceiverKind,
) -> None:
    fault = FaultFacts("demo/rollout-0 ended with exit status 1", NASTY, "/runs/rollout-0.log")
    text = text_of(kind, composed(replace(notification(), fault=fault)))
    for words in (
        "rollout-0 ended with exit status 1",
        "<!channel> @everyone",
        "/runs/rollout-0.log",
    ):
        assert words in text, words
    assert "\x1b" not in text
    assert ("trainwarden report 3" in text) == (kind != "json")
    ended = FaultFacts("demo/rollout-0 ended with exit status 2", lines="loading | no such key")
    assert "loading | no such key" in text_of(kind, composed(replace(notification(), fault=ended)))


def test_a_critical_alert_and_its_end_are_one_thing_and_what_has_no_incident_is_not() -> None:
    facts = {"fingerprint": "a", "starts_at": NOW, "alert": "TrainingGpuLost"}
    lost: dict[str, Any] = {"kind": "unhandled", "incident": None, "facts": facts}
    ended = lost | {"kind": "unhandled_ended", "id": 8, "facts": facts | {"fingerprint": "b"}}
    other = lost | {"id": 9, "run": "sft"}
    stale: dict[str, Any] = {"kind": "alerts_stale", "incident": None, "facts": {"seconds": 300.0}}
    message = composed(
        notification("unhandled", 1, **lost), notification("unhandled_ended", 2, **ended)
    )
    assert (message.title, message.urgent) == ("a critical alert has ended", False)
    assert message.items[0].values["Before"] == "critical alert"
    message = composed(
        notification("unhandled", 1, **lost),
        notification("unhandled", 2, **other),
        notification("alerts_stale", 3, **stale),
        notification("alerts_stale", 4, **stale | {"id": 10}),
    )
    assert len(message.items) == 4


def test_in_mode_observe_no_message_about_an_action_says_that_none_is_taken() -> None:
    def mode(one: Notification) -> str:
        return build_message([one], instance="b", mode="observe").items[0].values["Mode"]

    facts = {"outcome": "healed", "seconds": 4}
    healed = notification("healed", kind="outcome", action=4, facts=facts)
    assert mode(replace(healed, approved=True)) == "observe (an operator approved the action)"
    assert mode(healed) == "observe (no further actions are taken)"
    assert mode(replace(notification(), attempts=())) == "observe (no actions are taken)"
