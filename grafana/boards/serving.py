"""How inference servers are, in the words that several boards use."""

from __future__ import annotations

from boards import style, why
from boards.panels import Timeline
from boards.queries import Query, coded
from boards.style import rising, words
from boards.tables import Column, Table

REASONS = (
    "ok",
    "starting",
    "paused",
    "sleeping",
    "updating_weights",
    "busy",
    "refused",
    "unreachable",
    "timeout",
    "status",
    "unauthorized",
    "engine_dead",
    "hung",
)
REASON_WORDS = words(
    ("ok", style.GOOD),
    ("starting", "semi-dark-blue"),
    ("paused", style.CALM),
    ("sleeping", "light-blue"),
    ("updating weights", "purple"),
    ("busy", "blue"),
    ("refused", style.CRITICAL),
    ("unreachable", style.CRITICAL),
    ("timeout", "orange"),
    ("error status", "orange"),
    ("unauthorized", style.WARNING),
    ("engine dead", "dark-red"),
    ("hung", "dark-red"),
)


_BY = "max by (run, server, engine, instance)"


def server_states() -> Timeline:
    """How each server was when."""
    return Timeline(
        title="Inference servers",
        about=(
            "How each server was. Good: ok, busy with a request, or paused, sleeping or updating "
            "weights as the run wants it. Refused, unreachable or engine dead is down after 10 s, "
            "timeouts and error statuses after a minute; hung is up and gets nothing done. All "
            "these are restarted."
        ),
        queries=[
            Query(
                coded("trainwarden_inference_reason{SERVER}", "reason", REASONS),
                "{{run}} {{server}}",
                why.NO_SERVERS,
            )
        ],
        width=24,
        height=6,
        meanings=REASON_WORDS,
    )


def servers_now() -> Table:
    """How each server is at the moment."""
    return Table(
        title="Servers now",
        about="How each is, since when, how it answers. Good: ok, no failures in a row.",
        queries=[
            Query(
                f"{_BY} ({coded('trainwarden_inference_reason{SERVER}', 'reason', REASONS)})",
                "is",
                why.NO_SERVERS,
            ),
            Query(
                f"1000 * {_BY} (trainwarden_inference_state_timestamp_seconds{{SERVER}})",
                "since",
                why.NO_SERVERS,
            ),
            Query(
                f"{_BY} (trainwarden_inference_consecutive_failures{{SERVER}})",
                "failures",
                why.NO_SERVERS,
            ),
            Query(
                f"{_BY} (trainwarden_inference_http_status{{SERVER}})",
                "status",
                why.NO_ANSWER,
            ),
            Query(
                f"{_BY} (trainwarden_inference_deep_probe_success{{SERVER}})",
                "completion",
                why.NO_DEEP,
            ),
            Query(f"{_BY} (trainwarden_inference_models{{SERVER}})", "models", why.NOT_REPORTED),
            Query(
                f"{_BY} (trainwarden_inference_weight_version{{SERVER}})",
                "weights",
                why.NO_VERSION,
            ),
            Query(
                f"1000 * {_BY} (trainwarden_inference_progress_timestamp_seconds{{SERVER}})",
                "worked",
                why.NO_WORK,
            ),
            Query(
                f"{_BY} (trainwarden_inference_backends_healthy{{SERVER}})",
                "backends",
                why.NO_ROUTER,
            ),
            Query(f"{_BY} (trainwarden_inference_backends{{SERVER}})", "of", why.NO_ROUTER),
        ],
        width=24,
        height=6,
        columns=[
            Column(name="run"),
            Column(name="server"),
            Column(name="engine"),
            Column(name="is", meanings=REASON_WORDS),
            Column(name="since", unit="dateTimeFromNow"),
            Column(name="failures", title="failures in a row", scale=rising(1, 3)),
            Column(name="status", title="HTTP status"),
            Column(
                name="completion", meanings=words(("fails", style.CRITICAL), ("ok", style.GOOD))
            ),
            Column(name="models", scale=style.Scale(style.CRITICAL, ((1, style.GOOD),))),
            Column(name="weights", title="weight version"),
            Column(name="worked", title="last activity", unit="dateTimeFromNow"),
            Column(name="backends", title="healthy backends"),
            Column(name="of", title="of backends"),
            Column(name="instance"),
        ],
    )
