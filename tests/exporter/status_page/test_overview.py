"""The head of the status page: the whole box in a few lines, on any screen, in any light."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from trainwarden_exporter.app import declared_metrics
from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.runtime.responsibility import NOBODY, REMEDIATOR
from trainwarden_exporter.scrape.collector import Family
from trainwarden_exporter.scrape.scraper import Outcome
from trainwarden_exporter.status_page import page as status_page
from trainwarden_exporter.status_page.disks import DiskView, build_disk_views
from trainwarden_exporter.status_page.gpus import GpusView, GpuView
from trainwarden_exporter.status_page.host import HostView, WorkerView
from trainwarden_exporter.status_page.overview import Views, newest, overview_section, worst
from trainwarden_exporter.status_page.page import PageData
from trainwarden_exporter.status_page.part_views import CheckpointView, ServerView
from trainwarden_exporter.status_page.remediator_client import (
    FiringAlert,
    RemediatorAction,
    RemediatorAlert,
    RemediatorStatus,
)
from trainwarden_exporter.status_page.run_text import describe_run
from trainwarden_exporter.status_page.run_views import RunView
from trainwarden_exporter.status_page.runs import run_section
from trainwarden_exporter.webserver import html

METRICS = {metric.name: metric for metric in declared_metrics()}
NOW = 1_000_000.0
GIB = 1 << 30
EVIL = "<script>alert('x')</script>&\"$title"
READABLE = 4.5
"""The contrast that text needs (WCAG 2.1, 1.4.3 AA),"""
READABLE_LARGE = 3.0
"""and text that is bold and of 14 points or more, which the verdict is."""

RUN = RunView(
    "grpo",
    phase="training",
    step=1501,
    total=4675,
    checkpoints=(
        CheckpointView("critic", 1400, 9000),
        CheckpointView("default", 1500, 740),
    ),
    servers=(ServerView("sglang-0", "sglang", waiting=3),),
)
WORKER = WorkerView("grpo", "trainer", "trainer", processes=1, expected=1)
GPU = GpuView("0", "GPU-a", up=True, utilization=0.9)
DISK = DiskView("/data", up=True, size=100 * GIB, free=50 * GIB, floor=5 * GIB)
HOST = HostView(total=128 * GIB, available=60 * GIB, floor=8 * GIB)
STATUS = RemediatorStatus(
    mode="act",
    tone="warn",
    verdict="A worker is gone.",
    who_acts=REMEDIATOR,
    how="It waits: too soon after the last action.",
    open_alerts=1,
    alerts=(
        RemediatorAlert(
            alert="TrainingWorkerGone",
            run="grpo",
            worker="rollout-0",
            since=NOW - 60,
            tone="warn",
            who_acts=REMEDIATOR,
            handling="waits: too soon after the last action",
        ),
    ),
    actions=(
        RemediatorAction(
            run="grpo",
            worker="rollout-0",
            at=NOW - 190,
            tone="good",
            action="restart",
            outcome="healed",
        ),
    ),
    firing=(
        FiringAlert(
            alert="TrainingWorkerGone",
            run="grpo",
            worker="rollout-0",
            since=NOW - 60,
            tone="bad",
            who_acts=REMEDIATOR,
            handling="waits: too soon after the last action",
        ),
    ),
    firing_count=1,
)
SEEN = Views((RUN,), (WORKER,), HOST, GpusView("ok", 1, (GPU,)), (DISK,), STATUS)


class Words(HTMLParser):
    """The words of a page, which tags it has, and how it is built; fails on what does not match."""

    VOID = frozenset({"link", "meta", "rect"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = ""
        self.tags: list[str] = []
        self.headings: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        if self._open and self._open[-1] == "h2":
            self.headings.append(data)
        self.text = " ".join(f"{self.text} {data}".split()).replace(" ,", ",")


def words(seen: Views) -> str:
    return Words(overview_section(seen, now=NOW)).text


def family(name: str, samples: Mapping[tuple[str, ...], float]) -> Family:
    made = METRICS[f"trainwarden_{name}"].family()
    for labels, value in samples.items():
        made.add_metric(labels, value)
    return made


def disks(**series: float) -> Outcome:
    return Outcome(
        "disk", 0.01, tuple(family(f"disk_{n}", {("/data",): v}) for n, v in series.items())
    )


def snapshot(*outcomes: Outcome, remediator: RemediatorStatus | str | None = None) -> PageData:
    return PageData(
        NOW, NOW - 1000, Path("/etc/exporter.yml"), NOW - 1000, outcomes, remediator=remediator
    )


def whole(*outcomes: Outcome, remediator: RemediatorStatus | str | None = None) -> Words:
    return Words(status_page.render(snapshot(*outcomes, remediator=remediator)))


def test_everything_one_looks_for_at_night_is_in_the_first_lines() -> None:
    assert words(SEEN) == (
        "At a glance Alerts 1 active, TrainingWorkerGone "
        "Run grpo training, step 1,501 of 4,675 Checkpoint 12 min 20 s ago, step 1,500 "
        "Workers 1 of 1 up Inference 1 of 1 up, 3 queued GPUs 1 of 1 up, 90% busy "
        "Last action healed, restart of grpo/rollout-0, 3 min 10 s ago "
        "Host memory 60.0 GiB free, of 128 GiB Disk 50.0 GiB free, /data"
    )


def test_what_is_wrong_is_named_there() -> None:
    down = replace(RUN, servers=(ServerView("sglang-0", "sglang", False, "no_answer"),))
    gone = replace(WORKER, processes=0)
    finished = replace(WORKER, name="eval", processes=0, finished=True)
    lost = GpusView("ok", 2, (GPU, GpuView("1", "GPU-b", up=False)))
    message = words(replace(SEEN, runs=(down,), workers=(gone, finished), gpus=lost))

    assert "Workers trainer not running, 0 of 2 up, 1 finished" in message
    assert "Inference 0 of 1 up, sglang-0 no answer" in message
    assert "GPUs 1 of 2 up, 1 of 2 GPUs missing, 90% busy" in message


def test_a_server_that_works_and_does_not_answer_is_busy() -> None:
    busy = ServerView("own", "generic", reason="busy")
    for up in (True, False):
        message = words(replace(SEEN, runs=(replace(RUN, servers=(replace(busy, up=up),)),)))
        assert f"Inference {up:d} of 1 up, own busy" in message


def test_of_many_that_are_gone_the_first_are_named() -> None:
    gone = tuple(replace(WORKER, name=f"w-{number}", processes=0) for number in range(64))
    assert (
        "w-0 not running, w-1 not running, w-2 not running, w-3 not running, 60 more, 0 of 64 up"
        in words(replace(SEEN, workers=gone))
    )


def test_of_several_runs_each_has_its_own_checkpoint() -> None:
    message = words(replace(SEEN, runs=(RUN, replace(RUN, name="sft", checkpoints=()))))
    assert "Run sft training" in message
    assert "Checkpoint of grpo 12 min 20 s ago, step 1,500" in message
    assert "Checkpoint of sft" not in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"free": 2 * GIB}, "Disk nearly full, /data 2.0 GiB free"),
        ({"read_only": True}, "Disk read-only, /data 50.0 GiB free"),
        ({"up": False, "free": None, "size": None}, "Disk does not answer, /data"),
        ({"speed": 1e6, "speed_floor": 1e8}, "Disk slow, /data 50.0 GiB free"),
    ],
)
def test_the_disk_in_the_worst_state_is_reported(
    change: Mapping[str, float | bool | None], message: str
) -> None:
    small = replace(DISK, path="/", free=6 * GIB)
    assert message in words(replace(SEEN, disks=(small, replace(DISK, **change))))  # type: ignore[arg-type]


def test_without_trouble_the_fullest_disk_is_reported() -> None:
    assert "Disk 6.0 GiB free, /" in words(
        replace(SEEN, disks=(DISK, replace(DISK, path="/", free=6 * GIB)))
    )


def test_a_host_alone_needs_no_glance() -> None:
    bare = Views((), (), HOST, GpusView(), (DISK,))
    assert overview_section(bare, now=NOW) == ""


def test_a_remediator_that_does_not_answer_is_no_silence() -> None:
    message = words(replace(SEEN, remediator="connection refused"))
    assert "Remediator no answer, connection refused" in message
    assert "Alerts not known" in message


def test_a_calm_remediator_says_so() -> None:
    nothing = {"open_alerts": 0, "alerts": (), "actions": (), "firing": (), "firing_count": 0}
    calm = STATUS.model_copy(update=nothing)
    assert "Alerts none Last action none yet" in words(replace(SEEN, remediator=calm))
    assert "Alerts" not in words(replace(SEEN, remediator=None))


def test_a_fresh_checkpoint_does_not_hide_that_another_kind_is_overdue() -> None:
    late = CheckpointView("critic", 1400, 9000, 1800)
    run = replace(RUN, checkpoints=(RUN.checkpoints[1], late))
    shown = overview_section(replace(SEEN, runs=(run,)), now=NOW)
    assert '<span class="state warn">12 min 20 s ago</span>' in shown
    assert '<span class="state good">12 min 20 s ago</span>' in overview_section(SEEN, now=NOW)


def test_what_is_saved_but_not_named_as_a_checkpoint_is_shown() -> None:
    kinds = CheckpointView("t", others="a.txt"), CheckpointView("t-overwritten", others="a.txt")
    run = replace(RUN, framework="generic", checkpoints=kinds)
    why = "not named as a checkpoint, such as checkpoint-500 or ckpt.pt: a.txt"
    assert f"Checkpoint none, {why}" in words(replace(SEEN, runs=(run,)))
    assert describe_run(run).endswith(f", no checkpoint ({why})")
    assert not replace(run, checkpoints=(kinds[0], CheckpointView("ckpt", 10, 5.0))).unnamed
    assert not replace(run, checkpoints=()).unnamed
    assert "of verl: a.txt" in replace(run, framework="verl").unnamed


def test_a_folder_of_checkpoints_that_does_not_exist_is_shown_of_a_run_that_makes_steps() -> None:
    kinds = (
        CheckpointView("t", missing_folder="/w/typo"),
        CheckpointView("o", missing_folder="/w/typo"),
    )
    run = replace(RUN, step=40, checkpoints=kinds, trainer_processes=1, trainer_age=120.0)
    why = "/w/typo does not exist: a hang is not healed without a checkpoint"
    assert f"Checkpoint none, {why}" in words(replace(SEEN, runs=(run,)))
    assert describe_run(run).endswith(f", no checkpoint ({why})")
    assert not replace(run, trainer_age=20.0).unnamed
    assert not replace(run, step=None).unnamed
    assert not replace(run, finished=True).unnamed


def test_the_newest_checkpoint_is_shown_before_it_is_known_to_be_complete() -> None:
    """A run that keeps three, and saves each 11 s, has rarely a checkpoint of 30 s."""
    young = CheckpointView("t", saving=True, settling=True, incomplete_step=60)
    run = replace(RUN, checkpoints=(CheckpointView("t-overwritten"), young))
    assert "Checkpoint step 60, settling" in words(replace(SEEN, runs=(run,)))
    shown = re.sub(r"<[^>]+>", " ", run_section(run, "", now=NOW))
    assert "step 60 settling" in " ".join(shown.split())
    left = replace(run, checkpoints=(replace(young, saving=False, settling=False),))
    assert "Checkpoint none" in words(replace(SEEN, runs=(left,)))


def test_a_save_of_ten_milliseconds_is_settling_everywhere() -> None:
    young = CheckpointView("t", 90, 37.0, saving=True, settling=True, incomplete_step=100)
    run = replace(RUN, checkpoints=(young,))
    shown = " ".join(re.sub(r"<[^>]+>", " ", run_section(run, "", now=NOW)).split())
    assert "step 100 settling" in shown
    assert "saving" not in shown
    assert "last complete save 37 s ago (step 100 settling)" in describe_run(run)
    assert not replace(young, age=9000.0, interval=60.0, saving=False).overdue


def test_the_newest_checkpoint_is_the_one_saved_last() -> None:
    never = CheckpointView("never")
    assert newest((never, *RUN.checkpoints)) == RUN.checkpoints[1]
    assert newest((never,)) == never
    assert newest(()) is None


def test_the_worst_tone_wins() -> None:
    assert worst(("good", "bad", "warn")) == "bad"
    assert worst(("quiet", "warn", "good")) == "warn"
    assert worst(()) == worst(("quiet",)) == "quiet"


def test_disks_are_put_together_from_their_series() -> None:
    seen = disks(up=1, size_bytes=100, free_bytes=4, free_floor_bytes=5, read_only=0)
    assert build_disk_views([seen]) == (DiskView("/data", True, 100, 4, 5),)
    slow = disks(up=1, probe_bytes_per_second=1, probe_floor_bytes_per_second=2)
    assert [disk.state for disk in build_disk_views([slow])] == ["slow"]
    left = family("disk_checkpoints_left", {("a", "c", "/data"): 2.0, ("b", "c", "/"): 1.0})
    (found,) = build_disk_views([seen, Outcome("checkpoints", 0.1, (left,))])
    assert (found.runs, found.state) == (frozenset({"a"}), "nearly full")


def test_a_disk_has_its_place_on_the_page_and_in_the_verdict() -> None:
    full = disks(up=1, size_bytes=100 * GIB, free_bytes=4 * GIB, free_floor_bytes=5 * GIB)
    page_of_it = whole(full)
    assert (
        "disk /data: nearly full. Who acts You, now No remediator is configured." in page_of_it.text
    )
    assert "/data nearly full 4.0 GiB of 100 GiB" in page_of_it.text
    assert "disk /data: does not answer." in whole(disks(up=0)).text
    assert "disk /data: read-only." in whole(disks(up=1, read_only=1)).text


def test_what_the_remediator_says_is_part_of_the_verdict() -> None:
    needed = STATUS.model_copy(update={"tone": "bad", "operator_needed": "The remediator gave up."})
    quiet = STATUS.alerts[0].model_copy(update={"tone": "quiet"})
    calm = {"tone": "good", "alerts": (quiet,), "firing": (), "firing_count": 0, "who_acts": NOBODY}
    resting = STATUS.model_copy(update=calm)

    assert (
        "The remediator gave up. And 1 more, below. Who acts You" in whole(remediator=needed).text
    )
    fires = "TrainingWorkerGone fires on grpo/rollout-0. Who acts The remediator It waits: too soon"
    assert fires in whole(remediator=STATUS).text
    (firing,) = STATUS.firing or ()
    twice = STATUS.model_copy(update={"firing": (firing, firing), "firing_count": 2})
    assert "more, below" not in whole(remediator=twice).text, "one for each receiver, say"
    assert "All is well: no run is known. The mode is act." in whole(remediator=resting).text
    observing = resting.model_copy(update={"mode": "observe"})
    assert "no run is known. The remediator only observes." in whole(remediator=observing).text
    gone = whole(remediator="connection refused").text
    assert "Nothing will be healed: the remediator does not answer (connection refused)." in gone


def test_what_the_remediator_watches_and_did_is_listed() -> None:
    message = whole(remediator=STATUS).text
    assert (
        "Remediator A worker is gone. mode act "
        "Active alert About Who acts Alert began "
        "TrainingWorkerGone grpo/rollout-0 The remediator waits: too soon after the last action "
        "1 min ago "
        "Last actions What Outcome When grpo/rollout-0 restart healed 3 min 10 s ago"
    ) in message


def test_only_the_first_of_many_alerts_are_listed() -> None:
    storm = {"alerts": STATUS.alerts * 20, "firing": (STATUS.firing or ()) * 20}
    many = STATUS.model_copy(update={"open_alerts": 400, "firing_count": 400, **storm})
    message = whole(remediator=many).text
    assert message.count("remediator waits: too soon") == 12
    assert "and 388 more" in message


def test_a_quiet_remediator_and_none_at_all_differ() -> None:
    nothing = {"open_alerts": 0, "alerts": (), "actions": (), "firing": (), "firing_count": 0}
    calm = STATUS.model_copy(update=nothing)
    message = whole(remediator=calm)
    assert "No alert fires. No actions yet." in message.text
    assert "Remediator" not in whole().headings


def test_succeeding_collectors_are_folded_and_a_failed_collector_is_not() -> None:
    good = Outcome("host", 0.1)
    failed = Outcome("gpu", 0.1, error=CollectError("no answer"))
    assert "all 1 succeeded" in whole(good).text
    assert ("open", None) not in whole(good).attributes
    assert "1 of 2 failed" in whole(good, failed).text
    assert ("open", None) in whole(good, failed).attributes


def test_every_section_is_there_and_in_order() -> None:
    memory = Outcome("host", 0.1, (family("memory_effective_total_bytes", {(): 128 * GIB}),))
    one: Mapping[tuple[str, ...], float] = {("grpo", "trainer", "trainer"): 1}
    workers = Outcome(
        "workers",
        0.1,
        (family("worker_expected_processes", one), family("worker_processes", one)),
    )
    gpu = Outcome("gpu", 0.1, (family("gpu_devices_expected", {(): 1}),))
    beats = Outcome("heartbeats", 0.1, (family("heartbeat_beats_total", {("", "cron"): 1}),))
    seen = whole(memory, workers, gpu, beats, disks(up=1), remediator=STATUS)
    assert seen.headings == [
        "At a glance",
        "Remediator",
        "Run grpo",
        "Heartbeats",
        "GPUs",
        "Host",
        "Disks",
        "Collectors",
        "Configuration",
    ]


def test_nothing_that_came_from_outside_becomes_markup() -> None:
    texts = {"run": EVIL, "worker": EVIL}
    alert = STATUS.alerts[0].model_copy(
        update={**texts, "alert": EVIL, "who_acts": EVIL, "handling": EVIL}
    )
    action = STATUS.actions[0].model_copy(update={**texts, "action": EVIL, "outcome": EVIL})
    evil = STATUS.model_copy(update={"verdict": EVIL, "alerts": (alert,), "actions": (action,)})
    disk = Outcome("disk", 0.1, (family("disk_up", {(EVIL,): 0}),))

    for remediator in (evil, EVIL):
        seen = whole(disk, remediator=remediator)
        assert "script" not in seen.tags
        assert seen.text.count("alert('x')") >= 3


def test_it_fits_a_phone_and_fetches_nothing() -> None:
    text = status_page.render(snapshot(disks(up=1), remediator=STATUS))
    seen = Words(text)
    assert text.startswith("<!DOCTYPE html>")
    assert ("content", "width=device-width, initial-scale=1") in seen.attributes
    assert {"script", "img", "iframe", "object"}.isdisjoint(seen.tags)
    assert seen.tags.count("link") == text.count('<link rel="icon" href="data:image/svg+xml,') == 1
    assert not re.search(r"(src=|url\(|@import|https?:)", text)
    # On a phone a table has no head: each cell carries its own label.
    assert seen.tags.count("td") == sum(name == "data-label" for name, _ in seen.attributes)


def _luminance(colour: str) -> float:
    """Relative luminance of `#rgb` or `#rrggbb`, by WCAG 2.1."""
    digits = colour[1:] if len(colour) > 4 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("light", ["light", "dark"])
def test_every_colour_of_text_can_be_read_by_day_and_by_night(light: str) -> None:
    blocks = re.findall(r":root \{(.*?)\}", html._STYLE, re.DOTALL)
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]+)", blocks[light == "dark"]))
    tones = ("good", "warn", "bad")
    small = {"page": ("text", "quiet"), "card": ("text", "quiet", *tones)}
    for ground, texts in small.items():
        for text in texts:
            assert _contrast(colours[text], colours[ground]) >= READABLE, (text, ground)
    for tone in tones:  # the verdict alone stands on the page itself
        assert _contrast(colours[tone], colours["page"]) >= READABLE_LARGE, tone
