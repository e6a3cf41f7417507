"""The results, and the page docs/damages.md."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from bounds import share_at_most
from damages.trials import CONTENT, STRUCTURE


@dataclass
class Tally:
    trials: int = 0
    by_content: int = 0
    as_incomplete: int = 0
    missed: list[str] = field(default_factory=list)


@dataclass
class LayoutResult:
    """The outcome of all trials of one layout."""

    layout: str
    tallies: dict[str, Tally] = field(default_factory=dict)
    healthy: Counter[str] = field(default_factory=Counter)
    accused: list[str] = field(default_factory=list)
    unproved: list[str] = field(default_factory=list)
    """Whole checkpoints that are neither accused nor proved at once."""
    slowest: float = 0.0


HEAD = """\
# Damages of checkpoints

Written by `python -m damages FOLDER` in `bench`, on checkpoints that `checkpoint_writers.py` wrote
with the real libraries: the Trainer of transformers, Lightning, save_pretrained,
torch.distributed.checkpoint and torch.save. Each trial damages the newest of two checkpoints.

A damage counts as found if the checkpoint is not proved: either its content shows the damage (*by
content*), or it does not count as complete in the first place (*incomplete*), so that no resume is
advised from it, or cannot be read. Bit flips in safetensors files, and swapped files whose format
does not name them, are found only if the checkpoint was proved before: these formats have no
checksum. The trials of these damages prove the checkpoint first.

The exporter scans every 10 s and waits until nothing was written for 15 s (30 s where a framework
leaves no marker, 40 s where a proved checkpoint is changed); then the structure is checked at once.
Content is read with at most 1.5 % of the disk's time and 10 % of a core, so that large checkpoints
take longer: of more than 8 GiB, an even sample of whole tensors is read. The clock of the trials is
a minute ahead, so these waits are not part of what was measured.

A *garbled* file has eight random bytes in the headers at the begin or end of a ZIP archive. Each
header is compared with the directory, which repeats it; whether torch.load refuses such a file was
not tried.

*At most* is the share of missed damages that the count leaves open with 95 % confidence, of these
kinds of damage and in these layouts.
"""


def page(results: list[LayoutResult]) -> str:
    """Returns docs/damages.md."""
    columns = "trials | found by content | incomplete | missed | at most"
    table = f"| {{}} | {columns} |\n|---|--:|--:|--:|--:|--:|"
    kinds = (*STRUCTURE, *CONTENT)
    healthy = sum((result.healthy for result in results), Counter[str]())
    listed = ", ".join(f"{count} {what}" for what, count in sorted(healthy.items()))
    accused = sum(len(result.accused) for result in results)
    unproved = sum(len(result.unproved) for result in results)
    bound = 100 * share_at_most(accused, healthy.total())
    slowest = max(result.slowest for result in results)
    return "\n".join(
        (
            HEAD,
            table.format("damage"),
            *(_row(kind, results, (kind,)) for kind in kinds),
            _row("**all of structure**", results, STRUCTURE),
            _row("**all of content**", results, CONTENT),
            "",
            table.format("layout"),
            *(_row(result.layout, [result], kinds) for result in results),
            "",
            f"Of {healthy.total()} sound checkpoints and saves under way ({listed}),",
            f"{accused} were accused of a damage (with 95 % confidence at most {bound:.2g} %);",
            f"{unproved} whole ones were not proved at once, because a file was added after the",
            "marker of a whole save.",
            f"The longest look at a layout took {slowest:.1f} s on a loaded machine, without the",
            "limits on its rate.",
            "",
        )
    )


def _row(name: str, results: list[LayoutResult], kinds: tuple[str, ...]) -> str:
    tallies = [one for result in results for kind, one in result.tallies.items() if kind in kinds]
    counts = (
        sum(one.trials for one in tallies),
        sum(one.by_content for one in tallies),
        sum(one.as_incomplete for one in tallies),
        sum(len(one.missed) for one in tallies),
    )
    bound = f"{100 * share_at_most(counts[3], counts[0]):.2g} %"
    return f"| {name} | {' | '.join(map(str, counts))} | {bound} |"
