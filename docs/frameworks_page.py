"""The page docs/frameworks.md, from the layouts: what is watched of a run of each framework."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainwarden_exporter.layouts import LAYOUTS
from trainwarden_exporter.layouts.base import CheckpointLayout, Layout, LinePattern, RolloutLayout
from trainwarden_exporter.layouts.proofs import (
    AllOf,
    AnyOf,
    JsonStep,
    Listed,
    Marker,
    Proof,
    Renamed,
    Settled,
    Tracker,
)
from trainwarden_exporter.layouts.troubles import SHARED
from trainwarden_exporter.wording import span

HEAD = """\
# Frameworks

Written by `make docs` from the layouts. A layout says where a framework leaves its
work, so that `framework:` and `path:` are enough to watch a run; whatever differs is said under
`checkpoints`, `rollouts` and `logs` of the run, which take the place of the layout's of the same
name.

Folders and files are relative to `path`. In them `{trial}` stands for any one name: of several runs
the one with the newest change is watched, unless `variables` says which is meant. Two runs that are
alive under one `path` must be told apart so. `{run?}` may also stand for no folder at all, so that
`path` may be the run's folder or the one above it; `{run? not step_*}` is none so called; and
`{has step_*}` at the end adds nothing, but the folder counts only while such a thing lies in it.

A step is the number of steps done, counted from one. A checkpoint that exists is none yet: it
counts when it is proven complete.
"""

EXAMPLES = {
    "areal": ("outputs/grpo", "{experiment: gsm8k-grpo, trial: trial0}"),
    "prime_rl": ("outputs", "{run: wordle}"),
    "verl": ("checkpoints", "{project: gsm8k, experiment: qwen_grpo}"),
    "openrlhf": ("ckpt/checkpoints_ppo_ray", ""),
    "trl": ("outputs/qwen-grpo", ""),
    "slime": ("checkpoints/qwen", ""),
    "nemo_rl": ("results/grpo", ""),
    "torchtitan": ("outputs", ""),
    "lightning": ("runs/bert", "{logger: lightning_logs, version: version_0}"),
    "optuna": ("study", ""),
    "skyrl": ("/root/ckpts", ""),
    "ray_train": ("/mnt/ray_results", "{run: grpo}"),
}
"""A `path` and the `variables` of each."""

OWN = """\
runs:
  - name: mine
    path: work
    checkpoints:
      - {name: all, folder: out, entry: 'step_(?P<step>\\d+)', complete: {marker: [DONE]}}
"""


def frameworks_page() -> str:
    """docs/frameworks.md."""
    return HEAD + "".join(_section(one) for one in LAYOUTS) + _troubles()


def _section(layout: Layout) -> str:
    versions = f" (read from {layout.versions})" if layout.versions else ""
    parts = [f"\n## {layout.title}\n\n`framework: {layout.name}`{versions}\n\n{_example(layout)}"]
    parts += [
        _bullets("Checkpoints", map(_checkpoint, layout.checkpoints)),
        _bullets("Batches and weights", map(_rollout, layout.rollouts)),
        _bullets(
            "Logs",
            (f"`{log.name}`: {_or(f'`{file}`' for file in log.files)}" for log in layout.logs),
        ),
        _bullets("Its lines tell", _told(layout.lines)),
        _bullets(
            "The step is also read from",
            (f"`{source.file}`" for source in layout.progress_files),
        ),
        _bullets(
            "Serves metrics of its own",
            (f"`{one.name}`: port {one.port}, `{one.path}`" for one in layout.endpoints),
        ),
        _bullets("Good to know", layout.notes),
    ]
    return "".join(parts)


def _example(layout: Layout) -> str:
    if layout.name not in EXAMPLES:
        return f"```yaml\n{OWN}```\n"
    path, variables = EXAMPLES[layout.name]
    lines = ["runs:", "  - name: grpo", f"    framework: {layout.name}", f"    path: {path}"]
    if variables:
        lines.append(f"    variables: {variables}  # only where there are several")
    return "```yaml\n" + "".join(f"{line}\n" for line in lines) + "```\n"


def _bullets(title: str, points: Iterable[str]) -> str:
    text = "".join(f"- {point}\n" for point in points)
    return f"\n**{title}**\n\n{text}" if text else ""


def _checkpoint(place: CheckpointLayout) -> str:
    text = f"`{place.name}`: in `{place.folder}`, one for each `{place.entry}`; complete "
    text += f"{proven(place.proof)}."
    if place.recovery is not None:
        text += f" The run resumes from what `{place.recovery.file}` says."
    return text


def _rollout(place: RolloutLayout) -> str:
    ranks = f", with a file `{place.rank}` for each rank" if place.rank else ""
    what = "weights for the inference engines" if place.carries == "weights" else "batches"
    return (
        f"`{place.name}`: {what} in `{place.folder}`, one for each `{place.entry}`{ranks}; "
        f"complete {proven(place.proof)}."
    )


def proven(proof: Proof) -> str:
    """When `proof` holds, as the end of a sentence."""
    match proof:
        case Marker(all_of=names, none_of=without, last=last):
            text = f"with {_and(names)}"
            if without:
                text += f" and without {_or(f'`{name}`' for name in without)}"
            return text + ", written last" * last
        case Renamed():
            return "once it bears its name"
        case Tracker(file=file):
            return f"once `{file}` beside it names it or a later one"
        case JsonStep(file=file, key=key):
            return f"once its `{file}` can be read and says its own step as `{key}`"
        case Listed(file=file):
            return f"once it is listed in `{file}`"
        case Settled(all_of=names, seconds=seconds):
            needed = f"with {_and(names)}, " if any(name not in ("", "*") for name in names) else ""
            return f"{needed}when nothing has changed for {span(seconds)}"
        case AnyOf(proofs=proofs):
            return ", or ".join(proven(one) for one in proofs)
        case AllOf(proofs=proofs):
            return " and ".join(proven(one) for one in proofs)
        case _:
            raise TypeError(f"no words for a {type(proof).__name__}")


def _told(lines: Iterable[LinePattern]) -> Iterator[str]:
    lines = tuple(lines)
    if any("(?P<step>" in one.regex for one in lines if not one.trouble):
        yield "the step"
    phases = dict.fromkeys(one.phase for one in lines if one.phase is not None)
    if phases:
        yield f"phases: {', '.join(f'`{phase}`' for phase in phases)}"
    numbers = dict.fromkeys(name for one in lines for name in _numbers(one))
    if numbers:
        yield f"numbers: {', '.join(f'`{name}`' for name in numbers)}"
    troubles = [one.name for one in lines if one.trouble]
    if troubles:
        yield f"trouble of its own: {', '.join(f'`{name}`' for name in troubles)}"


def _numbers(line: LinePattern) -> Iterator[str]:
    for piece in line.regex.split("(?P<")[1:]:
        name = piece.partition(">")[0]
        if name not in ("step", "total", "seconds"):
            yield name


def _and(names: Iterable[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


def _or(names: Iterable[str]) -> str:
    return " or ".join(names)


def _troubles() -> str:
    rows = "".join(
        f"| `{one.name}` | {' '.join(f'`{_shown(way)}`' for way in _ways(one.regex)[:3])} |\n"
        for one in SHARED
    )
    return (
        "\n## Trouble in any run\n\n"
        "Every log is searched for these, whatever the framework; a few of the ways in which each "
        "shows:\n\n"
        f"| pattern | such as |\n|---|---|\n{rows}"
    )


def _ways(regex: str) -> list[str]:
    """The alternatives at the top of `regex`."""
    ways, depth = [""], 0
    for place, letter in enumerate(regex):
        escaped = place > 0 and regex[place - 1] == "\\"
        depth += (letter == "(") - (letter == ")") if not escaped else 0
        if letter == "|" and depth == 0:
            ways.append("")
        else:
            ways[-1] += letter
    return ways


def _shown(way: str) -> str:
    return way.replace("|", "\\|")
