"""Finds what wrote a log: the framework and the part of the run; and the patterns of its lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from trainwarden.autopsy import patterns as autopsy_patterns
from trainwarden.autopsy.files import LogFile
from trainwarden_exporter.discovery.artifacts import detect_by_lines
from trainwarden_exporter.discovery.log_patterns import propose_patterns
from trainwarden_exporter.frameworks import FRAMEWORKS, get_framework
from trainwarden_exporter.frameworks.base import Framework, LinePattern
from trainwarden_exporter.frameworks.error_lines import COMMON_ERROR_PATTERNS
from trainwarden_exporter.logs.pattern_search import compile_patterns

_ROLES = (
    ("inference", r"infer|llm_server|vllm|sglang|serv(?:er|ing)"),
    ("orchestrator", r"orchestrat|\borch\b"),
    ("rollout", r"rollout|actor_\d|generat"),
    ("environment", r"\benvs?\b"),
    ("container", r"container|docker|pod\b|entrypoint|startup|boot"),
    ("trainer", r"train|rank|main|learner"),
)
_MIN_OWN_PATTERNS = 2
_WANDB_COPY = re.compile(r"(?:^|/)wandb/(?:.*/)?output\.log$")


def framework_of_lines(text: bytes) -> Framework | None:
    """Returns the framework whose lines are in `text`, of the most kinds, if that is clear."""
    decoded = text.decode(errors="replace")
    if (signed := detect_by_lines(decoded, FRAMEWORKS)) is not None:
        return signed
    scores: list[tuple[int, Framework]] = []
    for framework in FRAMEWORKS:
        own = tuple(line for line in framework.lines if not line.redrawn)
        if framework.name == "generic" or not own:
            continue
        found = {
            match.pattern.name
            for line in compile_patterns(own).search(text, 0, len(text))
            for match in line.matches
        }
        scores.append((len(found), framework))
    scores.sort(key=lambda one: -one[0])
    (best, framework), (second, _) = scores[0], scores[1]
    if best >= _MIN_OWN_PATTERNS and best > second:
        return framework
    return None


def is_copy(log: LogFile) -> bool:
    """Whether `log` is the copy of the console that Weights & Biases keeps."""
    return _WANDB_COPY.search(str(log.path)) is not None


def role_of(log: LogFile, framework: Framework) -> str:
    """Returns the part of the run that writes `log`; empty if its name does not tell."""
    if log.source != "log":
        return log.source
    if is_copy(log):
        return "trainer"
    base = Path(log.name).name
    for layout in framework.logs:
        # `logs/*.log` holds the logs of all parts, whatever its role
        if any(_fits(base, Path(template).name) for template in layout.files):
            return layout.role
    return next((role for role, words in _ROLES if re.search(words, base, re.IGNORECASE)), "")


def _fits(name: str, template: str) -> bool:
    return not set("{*") & set(template) and name == template


def patterns_of(log: LogFile, sample: bytes, framework: Framework) -> tuple[LinePattern, ...]:
    chosen = [*COMMON_ERROR_PATTERNS, *autopsy_patterns.BY_SOURCE[log.source]]
    if log.source == "log":
        chosen += [*framework.lines, *framework.default_lines]
        if framework.name == "generic" or not _has_steps(chosen, sample):
            chosen += [*get_framework("generic").lines, *get_framework("generic").default_lines]
        wanted = {"waiting_for_rollouts", "finished"}
        if framework.name == "generic":
            wanted |= {"saving", "evaluating"}
        if not _has_steps(chosen, sample):
            wanted |= {"step", "saving", "evaluating"}
        chosen += [
            LinePattern(f"found_{one.name}", one.regex, phase=one.phase, values=one.values)
            for one in propose_patterns(sample.decode(errors="replace"))
            if one.name in wanted
        ]
    if (first := autopsy_patterns.first_line_pattern(sample)) is not None:
        chosen.append(first)
    by_name: dict[str, LinePattern] = {}
    for pattern in chosen:
        by_name.setdefault(pattern.name, pattern)
    return tuple(by_name.values())


def _has_steps(patterns: Sequence[LinePattern], sample: bytes) -> bool:
    stepping = tuple(
        one for one in patterns if ("(?P<step>" in one.regex or one.advances) and not one.error
    )
    if not stepping:
        return False
    text = sample.replace(b"\r", b"\n")
    return next(compile_patterns(stepping).search(text, 0, len(text)), None) is not None
