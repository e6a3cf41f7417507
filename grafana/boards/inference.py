"""The inference servers: whether they serve, how fast, and with which weights."""

from __future__ import annotations

from boards import limits, why
from boards.board import Board
from boards.layout import Row
from boards.panels import COUNT, SECONDS, SHARE, Graph
from boards.queries import Query
from boards.serving import server_states, servers_now
from boards.style import rising
from boards.variables import HOST, INSTANCE, RUN, SERVER
from boards.verdict import ALERT_MARKS, START_MARKS

ONE = "{{run}} {{server}}"


def _graph(
    title: str, about: str, *queries: tuple[str, str, str], unit: str = COUNT, width: int = 8
) -> Graph:
    return Graph(
        title=title,
        about=about,
        queries=[Query(*query) for query in queries],
        unit=unit,
        width=width,
    )


def _rate(counter: str) -> str:
    return f"rate(trainwarden_inference_{counter}_total{{SERVER}}[$__rate_interval])"


SERVING = Row(
    "Do they serve?",
    [
        server_states(),
        servers_now(),
        _graph(
            "Probe latency",
            "Of the health check, and of a completion, which is asked for while nothing else is "
            "seen to be done. Good: milliseconds, and a second or so.",
            ("trainwarden_inference_probe_seconds{SERVER}", f"{ONE} health", why.NO_SERVERS),
            ("trainwarden_inference_deep_probe_seconds{SERVER}", f"{ONE} completion", why.NO_DEEP),
            unit=SECONDS,
            width=12,
        ),
        Graph(
            title="Health changes, in 15 minutes",
            about="Good: 0; from 6 on TrainingInferenceFlapping warns.",
            queries=[
                Query(
                    """
                    max without (reason) (
                      changes(
                        trainwarden_inference_reason{SERVER,reason=~"refused|unreachable|engine_dead|timeout|status|hung"}[15m]
                      )
                    )
                    """,
                    ONE,
                    why.NO_SERVERS,
                )
            ],
            unit=COUNT,
            decimals=0,
            width=12,
            scale=rising(limits.FLAPPING.value, None),
            shaded=True,
        ),
    ],
)

WORK = Row(
    "What do they do?",
    [
        _graph(
            "Requests",
            "Good: some running whenever a trainer waits for a batch, and a queue that drains. "
            "TrainingInferenceQueueFlooded fires if it does not for a quarter of an hour and is "
            "four times as long as what is worked on.",
            ("trainwarden_inference_running_requests{SERVER}", f"{ONE} running", why.NOT_REPORTED),
            ("trainwarden_inference_waiting_requests{SERVER}", f"{ONE} waiting", why.NOT_REPORTED),
        ),
        Graph(
            title="KV cache in use, by server",
            about=(
                "Of the fullest engine. Good: high and steady. At 95 % with requests put back "
                "TrainingInferenceKvCacheFull warns."
            ),
            queries=[
                Query("trainwarden_inference_kv_cache_usage_ratio{SERVER}", ONE, why.NOT_REPORTED)
            ],
            unit=SHARE,
            high=1,
            scale=rising(limits.KV_CACHE_FULL.value, None),
            shaded=True,
        ),
        _graph(
            "Tokens per second",
            "Good: even while there is work; prompts in proportion to what is generated.",
            (_rate("generated_tokens"), f"{ONE} generated", why.NOT_REPORTED),
            (_rate("prompt_tokens"), f"{ONE} prompt", why.NOT_REPORTED),
        ),
    ],
)

TROUBLE = Row(
    "What goes wrong?",
    [
        _graph(
            "Errors, aborts, rejections, preemptions",
            "Requests that ended in an error of the server, were given up, not taken in, or put "
            "back for want of KV cache. Good: 0; more than 10 errors in ten minutes are "
            "TrainingInferenceErrors.",
            (_rate("errors"), f"{ONE} errors", why.NOT_COUNTED),
            (_rate("aborts"), f"{ONE} aborts", why.NOT_COUNTED),
            (_rate("rejections"), f"{ONE} rejections", why.NOT_COUNTED),
            (_rate("preemptions"), f"{ONE} preemptions", why.NOT_COUNTED),
            unit="cps",
        ),
        Graph(
            title="Time in a transitional state",
            about=(
                "How long a server has been starting, paused or updating weights, and how long "
                "the most patient may. Good: under the lines."
            ),
            queries=[
                Query(
                    """
                    (time() - trainwarden_inference_state_timestamp_seconds{SERVER})
                    and on (run, server, instance, job) (
                      max without (reason) (
                        trainwarden_inference_reason{SERVER,reason=~"starting|paused|updating_weights"}
                      ) == 1
                    )
                    """,
                    ONE,
                    why.NOT_STARTING,
                ),
                Query(
                    "max by (run) (trainwarden_inference_start_grace_seconds{SERVER})",
                    "{{run}} may start for",
                    why.NO_SERVERS,
                    limit=True,
                ),
                Query(
                    "max by (run) (trainwarden_inference_pause_limit_seconds{SERVER})",
                    "{{run}} may pause for",
                    why.NO_SERVERS,
                    limit=True,
                ),
            ],
            unit=SECONDS,
        ),
        _graph(
            "Version of the weights",
            "Of each server, and of the trainer's policy. Good: they rise together; a server that "
            "stays behind answers with what the run has unlearned.",
            ("trainwarden_inference_weight_version{SERVER}", ONE, why.NO_VERSION),
            (
                "max by (run, side) (trainwarden_rollout_policy_version{RUN})",
                "{{run}} {{side}}",
                why.NO_POLICY,
            ),
        ),
    ],
)

BOARD = Board(
    uid="trainwarden-inference",
    title="Inference",
    about="Do the inference servers serve, how fast, and with which weights?",
    variables=[INSTANCE, HOST, RUN, SERVER],
    marks=[ALERT_MARKS, START_MARKS],
    rows=[SERVING, WORK, TROUBLE],
)
