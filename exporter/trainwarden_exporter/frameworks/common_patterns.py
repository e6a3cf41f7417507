"""Regular expressions in RE2 syntax, and process patterns, that several frameworks share."""

from __future__ import annotations

import re

from trainwarden_exporter.frameworks.base import LinePattern, ProcessPattern

RESTARTED = LinePattern("restarted", r"^trainwarden: \d[\d-]+T[\d:.]+Z process \d+ ")
"""The line with which `trainwarden run` separates the output of two processes of a run."""

NUMBER = r"[-+]?(?:(?i:nan|inf(?:inity)?)\b|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)"
"""A number, finite or not."""


def number_in_dict(key: str, name: str) -> str:
    """Matches the number at `key` in a dictionary printed by Python or JSON, as group `name`.

    The number may be quoted (Transformers 5) or inside `np.float64(…)` (numpy 2) or `tensor(…)`.
    """
    return rf"['\"]{re.escape(key)}['\"]: ?['\"]?(?:[\w.]+\()?(?P<{name}>{NUMBER})"


def number_after_colon(key: str, name: str) -> str:
    """Matches the number in `key:1.5` or `key: np.float64(1.5)`, as group `name`."""
    return rf"\b{re.escape(key)}: *(?:[\w.]+\()?(?P<{name}>{NUMBER})"


def tqdm_bar(description: str, *, any_unit: bool = False) -> str:
    """A progress bar of tqdm that is not nested, with the groups `step` and `total`.

    `description` is a regular expression for the text before the bar, with its colon. A cursor-up
    sequence, which `strip_ansi` keeps as a vertical tab, marks a nested bar. With `any_unit`, it
    may count what is no step.
    """
    rate = "[^\\]\\x0b]*" if any_unit else _TQDM_RATE
    return rf"^ *{description} *\d{{1,3}}%\|{_TQDM_COUNT}{rate}\](?:[^\x0b]|$)"


_TQDM_COUNT = r"[^|]{1,400}\| *(?P<step>\d+)/(?P<total>\d+) \[[\d:]+<[\d:?]+"
# `1234.56 examples/s`, with a space, is the preparation of a data set by Hugging Face's datasets
_TQDM_RATE = (
    r"(?:, *(?:[^\d.?\s\]\x0b]|[\d.?]+(?: ?(?i:it|step|batch|update|epoch)|[^\d.?\s\]\x0b]))"
    r"[^\]\x0b]*)?"
)

NESTED_TQDM_BAR = r"^ *\d{1,3}%\|[^|]{1,400}\| *\d+/\d+ \[[\d:]+<[^\]\x0b]*\] *\x0b"
"""A progress bar of tqdm without a description that is drawn below another one."""

RICH_BAR = r"(?:[^\x00-\x7f]{2}){5,}[^|]*?\b(?P<step>\d+)/(?P<total>\d+)\b"
"""A progress bar of Rich with a count, such as `━━━━╸━━━ 41/100 0:00:12`."""

_BEFORE_EPOCH = (
    r"(?i:start(?:ing|ed)?|begin(?:ning)?|train(?:ing)?|running|in|at|of|after|end(?:ed|ing)?"
    r"|finish(?:ed|ing)?|complet(?:ed|ing))"
)
# not `steps per epoch: 60` or `num_epoch=3`
_EPOCH = (
    rf"(?:^|[^\w\s]|\d[a-zA-Z%/]{{0,8}}[ \t]|\b{_BEFORE_EPOCH}[ \t])[ \t]{{0,12}}['\"]?"
    r"(?i:epoch|ep)['\"]?[ \t]{0,4}[:=#(\[]?[ \t]{0,4}['\"]?(?P<epoch>\d+(?:\.\d+)?)"
)
_EPOCHS = r"[ \t]?(?:/|of)[ \t]?(?P<epochs>\d+)"
EPOCH = LinePattern("epoch_word", rf"{_EPOCH}(?:{_EPOCHS})?", redrawn=True, role="trainer")
"""The number of an epoch anywhere in a line."""

EPOCH_OF = LinePattern("epoch_of", _EPOCH + _EPOCHS, redrawn=True, role="trainer")
"""The same where the line has how many there are."""

LOSS_WORDS = (
    r"(?:(?i:train(?:ing)?|avg|average|mean|total|running|current|final|batch|step|epoch"
    r"|iter(?:ation)?|lm|mlm|ce|bce|nll|ctc|kl|mse|mae|cross|entropy|contrastive|diffusion"
    r"|recon(?:struction)?|sft|dpo"
    r"|debug|info|warn(?:ing)?|error|critical)[_ \t/-]{1,8})*"
)
"""No word before a loss but these: any other makes it a loss of something else."""

_NOT_TRAINING = (
    r"\b(?i:best|lowest|min(?:imum)?|init(?:ial)?|prev(?:ious)?|old|val(?:id(?:ation)?)?"
    r"|eval(?:uation)?|test|dev)"
)
"""Words before a loss that is not the one of the last step: inf until the first validation."""

_BEFORE_LOSS = rf"(?:^|[^\w\s]|\d[a-zA-Z/%]{{0,8}}[ \t])[ \t]{{0,12}}{LOSS_WORDS}"

AFTER_LOSS = r"(?:_step)?['\"]?(?:[ \t]{0,12}[:=][ \t]{0,12}|[ \t]{1,12})['\"]?(?:[\w.]+\()?"

_LATER_LOSS = (
    rf"(?:(?:(?:[ \t]{{1,12}}|.*?(?:[^\w\s]|\d[a-zA-Z/%]{{0,8}}[ \t])[ \t]{{0,12}}['\"]?)"
    rf"(?i:train(?:ing)?)[ \t:_/-]{{1,4}}|.*?[,;|][ \t]{{0,12}}['\"]?)"
    rf"{LOSS_WORDS}(?:loss|Loss|LOSS){AFTER_LOSS}(?P<loss_>{NUMBER}))?"
)
"""The loss of the training behind another one in the same line."""

LOSS = LinePattern(
    "loss",
    rf"{_NOT_TRAINING}\W{{1,4}}{LOSS_WORDS}(?i:loss){AFTER_LOSS}{NUMBER}"
    rf"{_LATER_LOSS}|{_BEFORE_LOSS}(?:loss|Loss|LOSS){AFTER_LOSS}(?P<loss>{NUMBER})",
    redrawn=True,
)
"""The loss of the training anywhere in a line."""


VLLM = ProcessPattern(
    "inference",
    r"\bvllm serve\b|-m vllm\.entrypoints\.|\bVLLM::|\bvllm-serve\b|ray::vLLMHttpServer",
    engine="vllm",
)
SGLANG = ProcessPattern(
    "inference",
    r"-m sglang\.launch_server|\bsglang::|\bsglang serve\b|ray::SGLang(?:HttpServer|Engine)",
    engine="sglang",
)
