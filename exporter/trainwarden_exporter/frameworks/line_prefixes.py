"""What stands before the message of a log line: times, levels, loggers, files, ranks.

A logger's format is free, so that no list of formats is complete. What all of them have in common:
a time or a level begins the prefix, and each further part is a time, a level, a word in brackets, a
name with a separator, or a name that no sentence has, as `my.train` or `__main__`. All in RE2
syntax.
"""

from __future__ import annotations

_SEPARATOR = r"[ \t|:>-]*"

# of one rank, torchrun --tee, Ray, kubectl logs --prefix, docker compose: [rank0]: [default0]:
_SHIPPER = (
    r"(?:\[(?i:rank|default|worker|actor|train(?:er|ing)?)[ _]?0?\]:? ?"
    r"|\([\w.:-]+ pid=\d+(?:, ip=[^)]+)?\) +"
    r"|\[pod/[^\]]+\] +|[\w.-]+[-_]\d+ +\| +)"
)
_NUMBERS = r"[\[(]?\d[\dT:.,\- /Z+]*[\])]?[ |]+"
"""A time of any form. A numbered list begins so, too: no name may follow."""

_MONTH = r"(?:(?:[A-Z][a-z]{2},? )?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +)?"
_CLOCK = (
    rf"{_MONTH}[\[(<]?(?:\d[\dT:.,/Z+ \t-]*)?\d:\d\d[\dT:.,/Z+ \t-]*(?:[AP]M|UTC|CET)?[\])>]?"
    rf"{_SEPARATOR}"
)
_GLOG = r"\[?[IWE]\d{4} [\d:.]+ +(?:\d+ +)?"
_NAME = r"[A-Za-z_/][\w.<>/-]*(?::[\w.<>]+){0,2}"
_NAMED = rf"{_NAME}(?:\[\d+\])?(?:[\]:|]|[ \t]+[|>-]){_SEPARATOR}"
_PLAIN_NAME = (
    r"(?:__\w+__|root|main|(?i:train(?:er|ing)?)|\w+(?:[._-]\w+)+)(?::[\w.<>]+){0,2}[ \t]+"
)
"""A name before a blank: a word of a sentence has neither dot nor underscore."""

_LEVEL = rf"[\[(]?(?:INFO|info|NOTICE|notice|SUCCESS)[ \t]*[\])]?(?:[ \t|:>-]+|[\])]){_SEPARATOR}"
# a warning about a step is a sentence: `WARNING: step 12 took long`
_OTHER_LEVEL = r"[\[(]?(?:DEBUG|WARNING|WARN|ERROR|TRACE)[ \t]*[\])]?[ \t|:>-]+"
_BRACKETS = rf"(?:\[[^\[\]]{{0,80}}\]|\([^()]{{0,80}}\)){_SEPARATOR}"
_BEGIN = (
    rf"(?:{_CLOCK}|{_GLOG}|{_LEVEL}|{_OTHER_LEVEL}(?:{_NAMED}|{_PLAIN_NAME})"
    rf"|{_NAME}[ \t|:>-]+{_LEVEL})"
)
_STREAM = r"std(?:out|err) [FP] "  # of a container, as Kubernetes stores it
_PROGRAM = r"[\w.-]+ [\w.-]+\[\d+\]: "  # of a host, as syslog writes it
_PART = rf"(?:{_BEGIN}|{_NAMED}|{_PLAIN_NAME}|{_BRACKETS}|{_STREAM}|{_PROGRAM})"

_VALUE = r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"]*)"
_FIRST_KEY = r"(?:ts|time\w*|date|level|lvl|event|msg|message|logger|epoch|loss|train_loss|lr)"
# logfmt and structlog: level='info' event='training' step=63; training    loss=1.5 step=63
_PAIRS = (
    rf"(?:[a-z][\w ]{{0,40}}[ \t]{{2,}})?{_FIRST_KEY}={_VALUE},?[ \t]+"
    rf"(?:[A-Za-z_][\w./]*={_VALUE},?[ \t]+)*"
)

PREFIX = rf"{_SHIPPER}*(?:(?:{_NUMBERS})?|[ \t]*{_BEGIN}{_PART}*){_SHIPPER}*(?:{_PAIRS})?"

_OTHER_WORDS = (
    r"eval\w*|valid\w*|val|tests?|dev|critic|rollouts?|infer\w*|vllm|sglang|server|down ?load\w*"
    r"|datasets?|preproc\w*|tokeniz\w*|sampl\w*|generat\w*|sav(?:e|ed|ing)|load\w*|checkpoint\w*"
    r"|ckpt|resum\w*|restor\w*|skip\w*|fail\w*|trial\d*|judge|answer|plan|thought"
)
OTHER_WRITERS = (
    rf"(?:^|[^A-Za-z])(?:(?i:{_OTHER_WORDS})|[Ww]arn(?:ing)?|[Nn]ote|[Ee]rror)(?:[^A-Za-z/]|$)"
    r"|(?:Eval|Valid|Rollout|Critic)[A-Za-z]*(?:[^A-Za-z/]|$)"
    r"|\[(?i:rank|default|worker|actor|trainer)[ _]?[1-9]"
    r"|\brank=[1-9]"
)
"""Prefixes of what counts steps of its own, as an evaluation or a download, and of other ranks.

A folder of a path, before a slash, means nothing.
"""
