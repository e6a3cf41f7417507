"""No particular framework: exporter.yml describes what to watch."""

from __future__ import annotations

from trainwarden_exporter.frameworks import base as fw
from trainwarden_exporter.frameworks.common_patterns import (
    AFTER_LOSS,
    EPOCH,
    LOSS,
    LOSS_WORDS,
    NUMBER,
    RICH_BAR,
    tqdm_bar,
)
from trainwarden_exporter.frameworks.line_prefixes import OTHER_WRITERS, PREFIX

_VALUES = ("train_loss", "training_loss", "grad_norm", "reward", "kl", "entropy")
_PART_LOSSES = ("policy_loss", "actor_loss", "pg_loss", "value_loss", "critic_loss")
_TRAINING = r"(?i:[^:|]{0,40}\b(?:train|fit|epoch|step|iter|progress|update)[^:|]{0,40}?)"

_TRAIN = r"(?i:train(?:ing)?[ :_/-]+)?"

_LOSS_KEY = r"['\"](?:train[_/])?loss['\"]: ?[-\dnNiI]"
_PARENT = r"['\"](?:train(?:ing|er)?|metrics?|data|logs?|stats?|progress|fields|extra)['\"]: ?\{"
# a record of the training by its loss, or with a moment and the step at its beginning, or a message
_RECORD = (
    rf"\{{(?:[^{{}}]*{_LOSS_KEY}[^{{}}]*[ ,](?:{_PARENT})?"
    rf"|[^{{}}]*{_PARENT}[^{{}}]*{_LOSS_KEY}[^{{}}]*(?:\}}[^{{}}]*)?[ ,]"
    r"|(?:[^{}]*[, ])?['\"](?:message|msg|event|log)['\"]: ?(?:['\"]|\{)"
    rf"|['\"](?:epoch|ts|time\w*|date\w*)['\"]: ?(?:['\"][^'\"{{}}]*['\"]|[^'\"{{}},]+), ?"
    rf"(?:{_PARENT})?)"
)
_LATER_RECORD = (
    rf"\{{(?:[^{{}}]*{_PARENT})?(?:[^{{}}]*[, ])?['\"](?:global_?)?step['\"]: ?(?P<step_____>\d+),"
    rf"(?:[^{{}}]*[, ])?{_LOSS_KEY}"
)
"""A record of the training whose loss follows the step."""
_EPOCH = (
    r"[\[({]?(?i:epoch)s?[ \t:=#\[]{0,4}(?P<epoch>\d+(?:\.\d+)?)(?: ?(?:/|of) ?\d+)?"
    r"[\])}]{0,2}[ \t,|:;/-]+"
)
_STEP_KEY = r"(?P<key>(?i:global[ _])?(?i:step|iter(?:ation)?)s?)['\"]?[ \t:=#\[]{1,12}"

_END = r"(?:[^\w.%/]|$)"
_VALUE_WORDS = r"\w*loss|lr|train|epoch|avg|grad|time|dt|acc|ppl|reward"
_THOUSANDS = r"[1-9]\d{0,2}(?:,\d{3})+"
# 10,510 may be a step and another value, unless a total, the loss or nothing follows
_STEP = (
    rf"(?:(?P<step>{_THOUSANDS}|\d+)[ \t]{{0,8}}(?:/|of)[ \t]{{0,8}}"
    rf"(?:(?P<total>{_THOUSANDS})(?:[^\w.%/,]|,[ \t]|$)|(?P<total_>\d+){_END})"
    rf"|(?P<step_>{_THOUSANDS})(?:[ \t]*[|:()\[\]]|(?:,|,?[ \t]{{1,12}})(?i:{_VALUE_WORDS}))"
    r"|(?P<step____>[1-9]\d{0,2},\d{3})$"
    rf"|(?P<step__>\d{{4,}}|0){_END}"
    r"|(?P<step___>\d{1,3})(?:[^\w.%/,]|$|,(?:\D|$|\d{1,2}(?:\D|$)|\d{4}|\d{3}\.\d"
    r"|\d{3},(?:\d{1,2}(?:\D|$)|\d{4}))))"
)


def _other_bar(name: str, regex: str) -> fw.LinePattern:
    """A pattern of bars of an evaluation, a preparation or a transfer; also of training bars."""
    return fw.LinePattern(name, regex, redrawn=True, total_of="other", role="trainer")


def _count(
    name: str, regex: str, *, is_bar: bool = True, other_writers: str = ""
) -> fw.LinePattern:
    """A pattern of bars or lines that count steps, of the run or of an epoch."""
    return fw.LinePattern(
        name,
        regex,
        fw.Phase.TRAINING,
        redrawn=is_bar,
        total_of="epoch" if is_bar else "line",
        role="trainer",
        values=_VALUES,
        other_writers=other_writers,
    )


_COUNT = (
    rf"(?P<step>{_THOUSANDS}|\d+)(?:[ \t]{{0,8}}(?:/|of)[ \t]{{0,8}}(?P<total>{_THOUSANDS}|\d+))?"
)
_PAIRS = r"(?:[\w.]+(?:[ \t]?[=:][ \t]?|[ \t])[-+\d.e]+[a-z%]?[ \t,;|-]{1,6}){0,3}"
_INDENTED_STEP = (
    rf"^[ \t]{{1,16}}[\[(]?{_TRAIN}(?:{_EPOCH})?[\[(]?{_STEP_KEY}{_COUNT}"
    rf"[\])]?[ \t,;|:-]{{1,6}}{_PAIRS}{LOSS_WORDS}(?i:loss){AFTER_LOSS}{NUMBER}"
)
"""A step below a line of its epoch. An indented line of a sample has no loss."""
_STEP_AFTER_LOSS = (
    rf"^(?P<writer>{PREFIX})\{{[^{{}}]*{_LOSS_KEY}[^{{}}]*\}}[ \t,;|:-]{{1,6}}"
    rf"{_TRAIN}{_STEP_KEY}{_COUNT}{_END}"
)

FRAMEWORK = fw.Framework(
    name="generic",
    title="Anything else",
    lines=(
        LOSS,
        fw.LinePattern(
            "part_loss",
            rf"\b(?:{'|'.join(_PART_LOSSES)}){AFTER_LOSS}{NUMBER}",
            redrawn=True,
            values=_PART_LOSSES,
        ),
    ),
    default_lines=(
        _count("bar", tqdm_bar(rf"(?:{_TRAINING}: )?")),
        _count("rich_bar", rf"^ *(?:{_TRAINING} +)?{RICH_BAR}"),
        _other_bar("other_bar", tqdm_bar(r"[^|]{1,60}: ", any_unit=True)),
        _other_bar("other_rich_bar", rf"^ *[!-~][ -~]{{0,60}} {RICH_BAR}"),
        _count(
            "step",
            rf"^(?P<writer>{PREFIX})(?:{_LATER_RECORD}|(?:{_RECORD})?[\[({{'\"]*{_TRAIN}(?:{_EPOCH})?"
            rf"[\[({{'\"]*{_STEP_KEY}{_STEP}(?P<after>\D{{0,12}}))",
            is_bar=False,
            other_writers=OTHER_WRITERS,
        ),
        _count("indented_step", _INDENTED_STEP, is_bar=False),
        _count("step_after_loss", _STEP_AFTER_LOSS, is_bar=False, other_writers=OTHER_WRITERS),
        fw.LinePattern(
            "epoch",
            rf"^(?P<writer>{PREFIX})[\[({{'\"]*{_TRAIN}(?i:epoch)s?['\"]?[ :=#\[]{{1,3}}"
            r"(?P<epoch>\d+(?:\.\d+)?)\b",
            advances=True,
            redrawn=True,
            role="trainer",
            values=_VALUES,
            other_writers=OTHER_WRITERS,
        ),
        EPOCH,
        fw.LinePattern(
            "step_word",
            r"(?:^|[^\w/.-])(?i:(?:global|train)[ _])?(?i:step|iter(?:ation)?|batch)s?['\"]?"
            r"(?:[ \t]*[:=#(\[][ \t]*|[ \t]{1,12})\d+",
            role="trainer",
            hints_at_step=True,
        ),
    ),
    notes=fw.bullet_points("""
        - Describe folders, logs and patterns under checkpoints, rollouts and logs of the run.
          `trainwarden-exporter discover` proposes them from the content of a folder.
        - Without a pattern or file for the step, progress bars of tqdm and Rich, `step 10` and
          `epoch 3` are recognised in the logs of the trainer, at the start of a line or after the
          prefix of a logger or of a rank, `step 10 loss=1.5` also indented, and `"step": 10` in a
          record with the loss. Any other bar that counts on, as of an evaluation, shows that the
          run does not hang.
        - If no log line or file contains the step, let the trainer post its steps to a heartbeat.
    """),
)
