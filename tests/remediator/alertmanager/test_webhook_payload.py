from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.remediator.samples import FINGERPRINT, delivery, sent_alert

from trainwarden_remediator.alertmanager.webhook_payload import (
    MAX_ANNOTATION_LENGTH,
    MAX_ANNOTATIONS,
    MAX_LABEL_LENGTH,
    Notification,
    parse_notification,
)
from trainwarden_remediator.exceptions import MalformedWebhookError

HOSTILE = (
    "-oProxyCommand=touch /tmp/x",
    "$(reboot)",
    "; rm -rf / #",
    "a\nb",
    "nul\0inside",
    "../../etc/passwd",
    "\N{RIGHT-TO-LEFT OVERRIDE}txt.exe",
    "",
    "'; DROP TABLE incident; --",
)


def test_reads_what_alertmanager_sends() -> None:
    body = delivery(sent_alert(), sent_alert(status="resolved", fingerprint="f" * 16))
    notification = parse_notification(body)
    assert notification.truncated == 0
    firing, resolved = notification.alerts
    assert (firing.firing, resolved.firing) == (True, False)
    assert (firing.fingerprint, resolved.fingerprint) == (FINGERPRINT, "f" * 16)
    assert firing.name == "TrainingWorkerMemoryOverLimit"
    assert (firing.run, firing.worker) == ("demo", "rollout-0")
    assert firing.remediation == "restart_leaking_worker"


def test_what_an_alert_says_to_an_operator_is_kept_within_bounds() -> None:
    message = {"summary": "It leaks.", "description": "x" * 9999}
    body = delivery(sent_alert(annotations={**message, **{f"n{n}": "" for n in range(99)}}))
    (alert,) = parse_notification(body).alerts
    assert alert.annotations["summary"] == "It leaks."
    assert len(alert.annotations["description"]) == MAX_ANNOTATION_LENGTH
    assert len(alert.annotations) == MAX_ANNOTATIONS


@pytest.mark.parametrize(
    ("text", "second"),
    [
        ("2027-01-15T08:00:00Z", 0),
        ("2027-01-15T08:00:00.123456Z", 0.123456),
        ("2027-01-15T08:00:00.123456789Z", 0.123456),
        ("2027-01-15T09:00:00.5+01:00", 0.5),
        ("2027-01-15T08:00:00.1Z", 0.1),
    ],
)
def test_reads_starts_with_any_number_of_fractional_digits(text: str, second: float) -> None:
    (alert,) = parse_notification(delivery(sent_alert(startsAt=text))).alerts
    expected = datetime(2027, 1, 15, 8, tzinfo=UTC).timestamp() + second
    assert alert.starts_at == pytest.approx(expected, abs=1e-6)


def test_ignores_keys_of_later_versions_of_alertmanager() -> None:
    body = delivery(
        sent_alert(novelty={"deep": [1, 2]}),
        notification_reason="repeat interval elapsed",
        routeLabels={"a": "b"},
    )
    assert len(parse_notification(body).alerts) == 1


def test_an_alert_without_our_labels_selects_nothing() -> None:
    alert = sent_alert()
    alert["labels"] = {"alertname": "SomethingElse"}
    (parsed,) = parse_notification(delivery(alert)).alerts
    assert (parsed.run, parsed.worker, parsed.remediation) == ("", "", "")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_labels_are_carried_as_they_are(text: str) -> None:
    (alert,) = parse_notification(delivery(sent_alert(labels={"worker": text}))).alerts
    assert alert.worker == text


def test_endless_labels_are_cut() -> None:
    (alert,) = parse_notification(delivery(sent_alert(labels={"worker": "x" * 64_000}))).alerts
    assert alert.worker == "x" * MAX_LABEL_LENGTH


def test_counts_alerts_that_were_left_out() -> None:
    assert parse_notification(delivery(sent_alert(), truncatedAlerts=2)).truncated == 2


def test_accepts_a_delivery_without_truncated_alerts_as_older_versions_send() -> None:
    content = json.loads(delivery(sent_alert()))
    del content["truncatedAlerts"]
    assert parse_notification(json.dumps(content).encode()).truncated == 0


def without(key: str) -> bytes:
    content = json.loads(delivery(sent_alert()))
    del content[key]
    return json.dumps(content).encode()


def alert_without(key: str) -> bytes:
    alert = sent_alert()
    del alert[key]
    return delivery(alert)


MALFORMED: dict[str, bytes] = {
    "empty": b"",
    "not JSON": b"alerts=1",
    "cut short": delivery(sent_alert())[:-20],
    "not UTF-8": b'{"version": "4", "alerts": [], "x": "\xff"}',
    "a byte order mark": b"\xef\xbb\xbf" + delivery(),
    "null": b"null",
    "a list": b"[]",
    "nested without end": b'{"version": "4", "alerts": ' + b"[" * 100_000,
    "nested deep": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "version 3": delivery(sent_alert(), version="3"),
    "version as a number": delivery(sent_alert(), version=4),
    "no version": without("version"),
    "no alerts": without("alerts"),
    "alerts null": delivery(alerts=None),
    "alerts as a mapping": delivery(alerts={}),
    "an alert as text": delivery(alerts=["firing"]),
    "no status": alert_without("status"),
    "another status": delivery(sent_alert(status="pending")),
    "no fingerprint": alert_without("fingerprint"),
    "a fingerprint too short": delivery(sent_alert(fingerprint="0123")),
    "a fingerprint with a line end": delivery(sent_alert(fingerprint=f"{FINGERPRINT}\n")),
    "a fingerprint with an upper case letter": delivery(sent_alert(fingerprint="0123456789ABCDEF")),
    "a fingerprint as a number": delivery(sent_alert(fingerprint=1234567890123456)),
    "no start": alert_without("startsAt"),
    "a start without a zone": delivery(sent_alert(startsAt="2027-01-15T08:00:00")),
    "a start that is none": delivery(sent_alert(startsAt="yesterday")),
    "a start as a number": delivery(sent_alert(startsAt=1_800_000_000)),
    "no labels": delivery({**sent_alert(), "labels": None}),
    "a label that is a number": delivery(sent_alert(labels={"worker": 5})),
    "a label that is a list": delivery(sent_alert(labels={"worker": ["rollout-0"]})),
    "half a surrogate pair": delivery(sent_alert()).replace(b"rollout-0", b"\\ud800"),
    "fewer than none left out": delivery(sent_alert(), truncatedAlerts=-1),
    "left out as text": delivery(sent_alert(), truncatedAlerts="0"),
    "endlessly many left out": b'{"version":"4","alerts":[],"truncatedAlerts":1' + b"0" * 6000,
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_refuses(body: bytes) -> None:
    with pytest.raises(MalformedWebhookError):
        parse_notification(body)


SECRET = "s3cr3t-text"


@pytest.mark.parametrize(
    "alert",
    [
        sent_alert(labels={SECRET: 5}),
        sent_alert(labels={"worker": [SECRET]}),
        sent_alert(startsAt=SECRET),
        sent_alert(fingerprint=SECRET),
        sent_alert(status=SECRET),
        {SECRET: SECRET},
    ],
)
def test_a_refusal_names_the_place_and_repeats_nothing_that_was_sent(alert: dict[str, Any]) -> None:
    with pytest.raises(MalformedWebhookError) as caught:
        parse_notification(delivery(alert))
    assert str(caught.value).startswith("alerts[0].")
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
spoilt_alerts = st.dictionaries(st.sampled_from(sorted(sent_alert())), json_values).map(
    lambda changes: {**sent_alert(), **changes}
)
bodies = st.one_of(
    st.binary(),
    json_values.map(lambda value: json.dumps(value).encode()),
    st.lists(spoilt_alerts, max_size=3).map(lambda alerts: delivery(*alerts)),
    st.dictionaries(st.sampled_from(sorted(json.loads(delivery()))), json_values).map(
        lambda changes: delivery(sent_alert(), **changes)
    ),
)


@given(bodies)
def test_whatever_comes_is_read_or_refused(body: bytes) -> None:
    try:
        parsed = parse_notification(body)
    except MalformedWebhookError:
        return
    assert isinstance(parsed, Notification)
