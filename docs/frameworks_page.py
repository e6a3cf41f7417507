"""The page docs/frameworks.md, from the layouts: what is watched of a run of each framework."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from trainwarden_exporter.checkpoints.proofs import provable
from trainwarden_exporter.frameworks import FRAMEWORKS
from trainwarden_exporter.frameworks.base import (
    CheckpointLayout,
    Framework,
    LinePattern,
    RolloutLayout,
)
from trainwarden_exporter.frameworks.completeness_rules import (
    AllOf,
    AnyOf,
    CompletenessRule,
    JsonStepRule,
    ListedRule,
    MarkerRule,
    RenamedRule,
    SettledRule,
    TrackerRule,
)
from trainwarden_exporter.frameworks.error_lines import COMMON_ERROR_PATTERNS
from trainwarden_exporter.logs.pattern_search import PROGRESS_GROUPS
from trainwarden_exporter.runtime.formatting import format_duration

REAL_VERSIONS = Path(__file__).with_name("real_versions.json")

HEAD = """\
# Frameworks

Written by `make docs` from the framework definitions. A definition says where a framework writes
its output, so that `framework:` and `path:` are enough to watch a run. Describe deviations under
`checkpoints`, `rollouts` and `logs` of the run; they replace the entries of the same name.

Folders and files are relative to `path`. `{trial}` matches any one name: of several runs the one
with the newest change is watched, unless `variables` selects one. Two active runs under one `path`
must be distinguished by `variables`. `{run?}` also matches no folder at all, so that `path` may be
the run's folder or its parent; `{run? not step_*}` excludes matching names; `{has step_*}` at the
end adds no folder, but requires that the folder contains a matching entry.

A step is the number of completed steps, counted from one. A checkpoint counts only when it is
proven complete. What is *provable* is read after that ([damages.md](damages.md) has what is found):
every file by its own format (safetensors, archives of `torch.save`, JSON, YAML), and what follows
from the layout. Safetensors have no checksum: a changed bit in one is seen only if the checkpoint
was proved before. NaN and zeroed weights are searched where the format shows them.
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
    "megatron": ("checkpoints/gpt", ""),
    "deepspeed": ("checkpoints", "{run: gpt}"),
}
"""The `path` and the `variables` of the example of each framework."""

OWN = """\
runs:
  - name: mine
    path: work
    checkpoints:
      - {name: all, folder: out, entry: 'step_(?P<step>\\d+)', complete: {marker: [DONE]}}
"""


def frameworks_page() -> str:
    """Returns docs/frameworks.md."""
    return HEAD + "".join(_section(one) for one in FRAMEWORKS) + _troubles() + _real_versions()


def _real_versions() -> str:
    """Returns the table of what `make test-real` saw; empty if it never ran."""
    if not REAL_VERSIONS.exists():
        return ""
    rows = "".join(
        f"| `{name}` | {row['package']} {row.get('version', '')} | `{row['framework']}` "
        f"| {row.get('skipped') or ', '.join(_longest(row['shown']))} |\n"
        for name, row in sorted(json.loads(REAL_VERSIONS.read_text()).items())
    )
    return (
        "\n## Seen with real versions\n\n"
        "Written by `make test-real`: the programs of tests/real/programs on the CPU, with the "
        "file that `discover`\nprinted for them, unedited, compared with what their own callbacks "
        "recorded. A line is added once its test\nhas passed with that version.\n\n"
        f"| program | package | framework | as the program itself |\n|---|---|---|---|\n{rows}"
    )


def _longest(shown: Iterable[str]) -> list[str]:
    """Of what was seen for several times, such as an evaluation, the longest alone."""
    found: dict[str, str] = {}
    for one in sorted(shown, key=lambda one: int("".join(filter(str.isdecimal, one)) or 0)):
        found["".join(letter for letter in one if not letter.isdecimal())] = one
    return sorted(found.values())


def _section(framework: Framework) -> str:
    versions = f" (read from {framework.versions})" if framework.versions else ""
    parts = [
        f"\n## {framework.title}\n\n`framework: {framework.name}`{versions}\n\n"
        + _example(framework)
    ]
    parts += [
        _bullets("Checkpoints", map(_checkpoint, framework.checkpoints)),
        _bullets("Batches and weights", map(_rollout, framework.rollouts)),
        _bullets(
            "Logs",
            (f"`{log.name}`: {_or(f'`{file}`' for file in log.files)}" for log in framework.logs),
        ),
        _bullets("Recognised log lines", _line_facts((*framework.lines, *framework.default_lines))),
        _bullets(
            "The step is also read from",
            (f"`{source.file}`" for source in framework.progress_files),
        ),
        _bullets(
            "Exports its own metrics",
            (f"`{one.name}`: port {one.port}, `{one.path}`" for one in framework.endpoints),
        ),
        _bullets(
            "Limits of the framework itself",
            (
                f"`{limit.phase}`: {limit.seconds:g} s. {limit.reason}."
                for limit in framework.phase_limits
            ),
        ),
        _bullets("Notes", framework.notes),
    ]
    return "".join(parts)


def _example(framework: Framework) -> str:
    if framework.name not in EXAMPLES:
        return f"```yaml\n{OWN}```\n"
    path, variables = EXAMPLES[framework.name]
    lines = ["runs:", "  - name: grpo", f"    framework: {framework.name}", f"    path: {path}"]
    if variables:
        lines.append(f"    variables: {variables}  # only if there are several")
    return "```yaml\n" + "".join(f"{line}\n" for line in lines) + "```\n"


def _bullets(title: str, points: Iterable[str]) -> str:
    text = "".join(f"- {point}\n" for point in points)
    return f"\n**{title}**\n\n{text}" if text else ""


def _checkpoint(place: CheckpointLayout) -> str:
    text = f"`{place.name}`: in `{place.folder}`, one for each `{place.entry}`; complete "
    text += f"{proven(place.completeness)}."
    if place.recovery is not None:
        text += f" The run resumes from the record in `{place.recovery.file}`."
    text += f" Provable: {provable(place)}."
    return text


def _rollout(place: RolloutLayout) -> str:
    ranks = f", with a file `{place.rank}` for each rank" if place.rank else ""
    what = "weights for the inference engines" if place.carries == "weights" else "batches"
    return (
        f"`{place.name}`: {what} in `{place.folder}`, one for each `{place.entry}`{ranks}; "
        f"complete {proven(place.completeness)}."
    )


def proven(completeness: CompletenessRule) -> str:
    """Describes when `completeness` holds, as the end of a sentence."""
    match completeness:
        case MarkerRule(all_of=names, none_of=without, last=last):
            text = f"with {_and(names)}"
            if without:
                text += f" and without {_or(f'`{name}`' for name in without)}"
            return text + ", written last" * last
        case RenamedRule():
            return "once it is renamed to its final name"
        case TrackerRule(file=file):
            return f"once `{file}` beside it names it or a later step"
        case JsonStepRule(file=file, key=key):
            return f"once its `{file}` is readable and has its own step as `{key}`"
        case ListedRule(file=file):
            return f"once it is listed in `{file}`"
        case SettledRule(all_of=names, seconds=seconds):
            needed = f"with {_and(names)}, " if any(name not in ("", "*") for name in names) else ""
            return f"{needed}when unchanged for {format_duration(seconds)}"
        case AnyOf(rules=rules):
            return ", or ".join(proven(one) for one in rules)
        case AllOf(rules=rules):
            return " and ".join(proven(one) for one in rules)
        case _:
            raise TypeError(f"no words for a {type(completeness).__name__}")


def _line_facts(lines: Iterable[LinePattern]) -> Iterator[str]:
    lines = tuple(lines)
    if any("(?P<step>" in one.regex for one in lines if not one.error):
        yield "the step"
    phases = dict.fromkeys(one.phase for one in lines if one.phase is not None)
    if phases:
        yield f"phases: {', '.join(f'`{phase}`' for phase in phases)}"
    numbers = dict.fromkeys(name for one in lines for name in _numbers(one))
    if numbers:
        yield f"numbers: {', '.join(f'`{name}`' for name in numbers)}"
    troubles = [one.name for one in lines if one.error]
    if troubles:
        yield f"errors: {', '.join(f'`{name}`' for name in troubles)}"


def _numbers(line: LinePattern) -> Iterator[str]:
    for piece in line.regex.split("(?P<")[1:]:
        name = piece.partition(">")[0].rstrip("_")
        if name not in PROGRESS_GROUPS:
            yield name


def _and(names: Iterable[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


def _or(names: Iterable[str]) -> str:
    return " or ".join(names)


def _troubles() -> str:
    rows = "".join(
        f"| `{one.name}` | {' '.join(f'`{_shown(way)}`' for way in _ways(one.regex)[:3])} |\n"
        for one in COMMON_ERROR_PATTERNS
    )
    return (
        "\n## Errors in any run\n\n"
        "Every log is searched for these patterns, whatever the framework. Some of the forms of "
        "each:\n\n"
        f"| pattern | examples |\n|---|---|\n{rows}"
    )


def _ways(regex: str) -> list[str]:
    """Returns the top-level alternatives of `regex`."""
    ways, depth = [""], 0
    for place, letter in enumerate(regex):
        escaped = place > 0 and regex[place - 1] == "\\"
        depth += (letter == "(") - (letter == ")") if not escaped else 0
        if letter == "|" and depth == 0 and not escaped:
            ways.append("")
        else:
            ways[-1] += letter
    return ways


def _shown(way: str) -> str:
    """Returns a regular expression for a cell of a table, where two backslashes escape no bar."""
    plain = re.sub(r"\\(.)", lambda found: r"\x7c" if found[1] == "|" else found[0], way)
    return plain.replace("|", "\\|")
