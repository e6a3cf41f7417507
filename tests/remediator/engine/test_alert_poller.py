from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.remediator.fake_clock import FakeClock, InlineExecutor
from tests.remediator.samples import FINGERPRINT, NOW, make_alert
from tests.remediator.stage import going_on

from trainwarden_remediator.alertmanager.api import parse_listed_alerts
from trainwarden_remediator.config.endpoints import PullSettings
from trainwarden_remediator.engine.alert_poller import AlertPoller
from trainwarden_remediator.exceptions import ObservationError
from trainwarden_remediator.journal.journal import Journal

SETTINGS = PullSettings(match=('instance="node1"',), interval=5, resolve_after=90)
LABELS = {
    "alertname": "TrainingWorkerMemoryOverLimit",
    "instance": "node1",
    "remediation": "restart_leaking_worker",
    "run": "demo",
    "worker": "rollout-0",
}
DOG = {"alertname": "TrainingWatchdog"}


def moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def listed(
    labels: dict[str, str],
    *,
    fingerprint: str = FINGERPRINT,
    starts: float = NOW - 60,
    updated: float = NOW,
    state: str = "active",
    **muted: list[str],
) -> dict[str, Any]:
    """An alert as Alertmanager 0.25 lists it."""
    return {
        "annotations": {},
        "endsAt": moment(updated + 240),
        "fingerprint": fingerprint,
        "labels": labels,
        "receivers": [{"name": "on-call"}],
        "startsAt": moment(starts),
        "status": {"inhibitedBy": [], "silencedBy": [], "state": state, **muted},
        "updatedAt": moment(updated),
    }


class FakeAlertmanager:
    """Lists what the test says; its Prometheus sends the alert that always fires each minute."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.alerts: list[dict[str, Any]] = []
        self.fed = True
        self.fed_at = 0.0
        self.error: Exception | None = None
        self.asked: list[tuple[str, ...]] = []

    async def __call__(self, filters: Sequence[str]) -> bytes:
        self.asked.append(tuple(filters))
        if self.error:
            raise self.error
        if filters != ['alertname="TrainingWatchdog"']:
            return json.dumps(self.alerts).encode()
        if self.fed and self.clock.now() - self.fed_at >= 60:
            self.fed_at = self.clock.now()
        dog = listed(DOG, fingerprint="d" * 16, updated=self.fed_at)
        return json.dumps([dog] if self.fed_at else []).encode()

    def restart(self) -> None:
        """It has forgotten everything, and nobody has sent it anything yet."""
        self.alerts, self.fed_at, self.fed = [], 0.0, False


class Scene:
    def __init__(self, journal: Journal, clock: FakeClock) -> None:
        self.journal, self.clock = journal, clock
        self.alertmanager = FakeAlertmanager(clock)
        self.woken = 0
        self.alert_poller = AlertPoller(
            journal, SETTINGS, self.alertmanager, clock=clock, wake=self._wake
        )

    def _wake(self) -> None:
        self.woken += 1

    def inspect(self) -> list[tuple[str, float, bool]]:
        found = self.journal.open_incidents()
        return [(one.fingerprint, one.starts_at, one.resolved) for one in found]

    def received(self) -> dict[str, float]:
        counters = self.journal.counters().get("alerts_received", {})
        return {labels[0]: count for labels, count in counters.items()}


Begin = Callable[[], Any]


@pytest.fixture
def begin(journal: Journal, clock: FakeClock) -> Begin:
    @asynccontextmanager
    async def begin() -> AsyncIterator[Scene]:
        asyncio.get_running_loop().set_default_executor(InlineExecutor())
        scene = Scene(journal, clock)
        async with going_on(scene.alert_poller.run()):
            yield scene

    return begin


async def test_what_fires_is_accepted_once_and_then_each_minute(begin: Begin) -> None:
    async with begin() as scene:
        scene.alertmanager.alerts = [listed(LABELS)]
        await scene.clock.advance(3)
        (incident,) = scene.journal.open_incidents()
        assert (incident.run, incident.worker) == ("demo", "rollout-0")
        assert (incident.remediation, incident.starts_at) == ("restart_leaking_worker", NOW - 60)
        assert scene.woken == 1
        await scene.clock.advance(50)
        assert scene.received() == {"firing": 1}
        await scene.clock.advance(60)
        assert scene.received() == {"firing": 2}
        assert scene.journal.open_incidents()[0].last_received_at > NOW + 50


async def test_it_asks_by_the_operators_matchers_and_by_nothing_of_an_alert(begin: Begin) -> None:
    async with begin() as scene:
        scene.alertmanager.alerts = [listed({**LABELS, "run": '"}&filter=x'})]
        await scene.clock.advance(20)
        assert set(scene.alertmanager.asked) == {
            ('instance="node1"', 'remediation!=""'),
            ('alertname="TrainingWatchdog"',),
        }


@pytest.mark.parametrize(
    "changes", [{"instance": "node2"}, {"instance": ""}, {"remediation": ""}], ids=str
)
async def test_an_alert_that_was_not_requested_is_not_received(
    begin: Begin, changes: dict[str, str]
) -> None:
    async with begin() as scene:
        scene.alertmanager.alerts = [listed({**LABELS, **changes})]
        await scene.clock.advance(20)
        assert scene.inspect() == []


async def test_each_sending_of_the_alert_that_always_fires_is_a_heartbeat(begin: Begin) -> None:
    async with begin() as scene:
        await scene.clock.advance(3)
        assert scene.journal.timestamps()["watchdog"] == NOW
        await scene.clock.advance(62)
        beat = scene.journal.timestamps()["watchdog"]
        assert beat >= NOW + 60
        # Prometheus is dead; Alertmanager lists the last alerts for minutes.
        scene.alertmanager.fed = False
        await scene.clock.advance(120)
        assert scene.journal.timestamps()["watchdog"] == beat


async def test_what_is_gone_for_long_while_the_pipeline_lives_is_over(begin: Begin) -> None:
    async with begin() as scene:
        scene.alertmanager.alerts = [listed(LABELS)]
        await scene.clock.advance(10)
        scene.alertmanager.alerts = []
        await scene.clock.advance(80)
        assert scene.inspect() == [(FINGERPRINT, NOW - 60, False)]
        await scene.clock.advance(30)
        assert scene.inspect() == [(FINGERPRINT, NOW - 60, True)]
        assert scene.received() == {"firing": 1, "resolved": 1}


async def test_an_alertmanager_that_was_restarted_resolves_nothing(begin: Begin) -> None:
    async with begin() as scene:
        scene.alertmanager.alerts = [listed(LABELS)]
        await scene.clock.advance(10)
        scene.alertmanager.restart()
        await scene.clock.advance(600)
        assert scene.inspect() == [(FINGERPRINT, NOW - 60, False)]
        # Prometheus has found it again, and sends the one alert earlier than the other.
        scene.alertmanager.fed = True
        await scene.clock.advance(50)
        scene.alertmanager.alerts = [listed(LABELS)]
        await scene.clock.advance(200)
        assert scene.inspect() == [(FINGERPRINT, NOW - 60, False)]


async def test_a_prometheus_that_is_dead_resolves_nothing(begin: Begin) -> None:
    async with begin() as scene:
        scene.alertmanager.alerts = [listed(LABELS)]
        await scene.clock.advance(200)
        scene.alertmanager.fed = False
        await scene.clock.advance(60)
        scene.alertmanager.alerts = []  # its end, as Prometheus had foretold it, has come
        await scene.clock.advance(600)
        assert scene.inspect() == [(FINGERPRINT, NOW - 60, False)]


@pytest.mark.parametrize("error", [ObservationError("http://am:9093 answered 401"), MemoryError()])
async def test_an_unreachable_alertmanager_changes_nothing_and_is_reported_once(
    begin: Begin, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    async with begin() as scene:
        scene.alertmanager.alerts = [listed(LABELS)]
        await scene.clock.advance(10)
        scene.alertmanager.error = error
        await scene.clock.advance(300)
        assert scene.inspect() == [(FINGERPRINT, NOW - 60, False)]
        assert caplog.messages.count("polling for alerts failed") == 1
        asked = scene.alert_poller.last_answer_at
        scene.alertmanager.error = None
        await scene.clock.advance(10)
        assert scene.alert_poller.last_answer_at > asked


@pytest.mark.parametrize(
    "muted",
    [
        {"state": "suppressed", "silencedBy": ["x"]},
        {"state": "suppressed", "inhibitedBy": ["x"]},
        {"state": "suppressed", "mutedBy": ["nights"]},
    ],
    ids=str,
)
async def test_a_muted_alert_is_not_received_and_not_resolved_either(
    begin: Begin, muted: dict[str, Any]
) -> None:
    async with begin() as scene:
        scene.alertmanager.alerts = [listed(LABELS, **muted)]
        await scene.clock.advance(20)
        assert scene.inspect() == []
        scene.alertmanager.alerts = [listed(LABELS)]
        await scene.clock.advance(10)
        scene.alertmanager.alerts = [listed(LABELS, **muted)]
        await scene.clock.advance(300)
        assert scene.inspect() == [(FINGERPRINT, NOW - 60, False)]
        assert scene.received() == {"firing": 1}


async def test_the_same_alert_that_fires_again_ends_the_one_before(begin: Begin) -> None:
    async with begin() as scene:
        scene.alertmanager.alerts = [listed(LABELS)]
        await scene.clock.advance(10)
        scene.alertmanager.alerts = [listed(LABELS, starts=NOW + 5)]
        await scene.clock.advance(10)
        assert sorted(scene.inspect()) == [
            (FINGERPRINT, NOW - 60, True),
            (FINGERPRINT, NOW + 5, False),
        ]


async def test_what_was_over_while_the_program_was_away_is_over(
    begin: Begin, journal: Journal
) -> None:
    journal.record_alerts([make_alert(starts_at=NOW - 900)])
    async with begin() as scene:
        await scene.clock.advance(110)
        assert scene.inspect() == [(FINGERPRINT, NOW - 900, True)]


async def test_without_its_section_nobody_is_asked(begin: Begin) -> None:
    async with begin() as scene:
        scene.alert_poller.reconfigure(None, scene.alertmanager)
        await scene.clock.advance(60)
        asked = len(scene.alertmanager.asked)
        assert asked <= 2  # the first time may have come before
        scene.alert_poller.reconfigure(SETTINGS, scene.alertmanager)
        await scene.clock.advance(60)
        assert len(scene.alertmanager.asked) > asked


@pytest.mark.parametrize("body", [b"", b"{}", b'[{"fingerprint": "x"}]', b"<html>"])
def test_what_is_no_list_of_alerts_is_refused(body: bytes) -> None:
    with pytest.raises(ObservationError, match="something other"):
        parse_listed_alerts(body)


@pytest.mark.parametrize(
    "text", ["", "node1", "instance=node1", 'instance="a" or x="b"', 'a="b\\"c"', 'a=~"("']
)
def test_what_is_no_matcher_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a matcher|not a regular expression"):
        PullSettings(match=(text,))


def test_a_matcher_is_needed() -> None:
    with pytest.raises(ValueError, match="match"):
        PullSettings(match=())


def test_matchers_mean_what_alertmanager_means() -> None:
    pull = PullSettings(match=('a="b"', ' c != "d" ', 'e=~"f.*"', 'g!~"h|i"'))
    for labels, met in (
        ({"a": "b", "e": "f1"}, True),
        ({"a": "b", "c": "d", "e": "f"}, False),
        ({"a": "b", "e": "xf"}, False),
        ({"a": "b", "e": "f", "g": "i"}, False),
    ):
        assert all(matcher.matches(labels) for matcher in pull.matchers) is met
