"""Damages checkpoints of real libraries in a thousand ways, and counts which damages are found.

python bench/damages.py FOLDER    # as checkpoint_writers.py wrote it; writes docs/damages.md

Each trial damages the newest checkpoint of a layout and lets scanner and prover look at it, with a
clock that is a minute ahead. Sound checkpoints and saves in progress are judged the same way.
"""

from __future__ import annotations

import os
import shutil
import struct
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

from trainwarden_exporter.checkpoints.file_formats import METADATA, TENSOR_SUFFIXES, plan_file
from trainwarden_exporter.checkpoints.paced_reader import UnlimitedRate, open_paced
from trainwarden_exporter.checkpoints.proofs import ProofSnapshot, tracker_rule
from trainwarden_exporter.checkpoints.prover import CheckpointProver, Records, open_proofs
from trainwarden_exporter.checkpoints.scanner import CheckpointScanner
from trainwarden_exporter.checkpoints.segments import Segment
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import checkpoint_specs
from trainwarden_exporter.runtime.state_file import StateFile

PAGE = Path(__file__).resolve().parents[1] / "docs" / "damages.md"
SEED = 1
LATER = 60.0
SOUND_PER_LAYOUT = 46
WORKERS = 3
REGION = 16384
"""Bytes that are zeroed: at least a page lies within."""
FILES = 4
"""Files of a checkpoint that are damaged in each way."""
STRUCTURE = ("truncated", "missing", "garbled", "swapped", "permissions", "leftover", "tracker")
CONTENT = ("bit flip", "zeros", "NaN")

Damage = Callable[[Path], None]


@dataclass(frozen=True)
class Trial:
    """A damage of the newest checkpoint, at its path."""

    kind: str
    damage: Damage
    after_proof: bool = False
    """Whether the checkpoint was proved before: formats without a checksum show it only then."""


@dataclass
class Tally:
    trials: int = 0
    by_content: int = 0
    as_incomplete: int = 0
    missed: list[str] = field(default_factory=list)


class Yard:
    """One layout: a working copy with two checkpoints, restored before each trial."""

    def __init__(self, framework: str, source: Path, folder: Path) -> None:
        self.framework = framework
        self.path = folder / framework
        shutil.copytree(source, self.path)
        given = {"name": framework, "framework": framework, "path": str(self.path)}
        (self.spec, *_) = checkpoint_specs(RunConfig.model_validate(given))
        first = self._prove({}, LATER)[0]
        newest, before, *others = first.checkpoints
        for one in others:
            _remove(Path(one.path))
        self.newest = Path(newest.path)
        self.kept = folder / f"{framework}-kept"
        _copy(self.newest, self.kept)
        rule = tracker_rule(self.spec.layout.completeness)
        self.tracker = None if rule is None else self.newest.parent / rule.file
        self.tracker_text = "" if self.tracker is None else self.tracker.read_text()
        self.step, self.step_before = newest.step_dir.name.number, before.step_dir.name.number
        self.records = self._prove({}, LATER)[1]
        self.older = {path: one for path, one in self.records.items() if path != newest.path}
        self.slowest = 0.0

    def restore(self) -> None:
        _remove(self.newest)
        for leftover in self.newest.parent.glob(f"{self.newest.name}.*"):
            _remove(leftover)
        _copy(self.kept, self.newest)
        if self.tracker is not None:
            stamp = self.newest.parent.stat().st_mtime
            self.tracker.write_text(self.tracker_text)
            os.utime(self.tracker, (stamp, stamp))

    def prove(self, *, after_proof: bool = False, later: float = LATER) -> ProofSnapshot:
        return self._prove(self.records if after_proof else self.older, later)[0]

    def learn(self) -> None:
        """Proves the restored checkpoint, so that later changes are seen."""
        self.records = self._prove(self.older, LATER)[1]

    def _prove(self, known: Records, later: float) -> tuple[ProofSnapshot, Records]:
        def now() -> float:
            return time.time() + later

        scanner = CheckpointScanner(self.spec, now=now)
        scanned = scanner()
        state = StateFile(None, type(open_proofs(None, self.spec).value), empty=dict(known))
        prover = CheckpointProver(
            self.spec, lambda: scanned, state=state, rate=UnlimitedRate(), now=now
        )
        began = time.perf_counter()
        found = prover.prove_all()
        self.slowest = max(getattr(self, "slowest", 0.0), time.perf_counter() - began)
        return found, dict(state.value)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)


def tensor_files(entry: Path) -> list[str]:
    """Returns the files of tensors of a checkpoint, relative to it; "" for a single file."""
    if not entry.is_dir():
        return [""]
    found = (path for path in sorted(entry.rglob("*")) if path.name.endswith(TENSOR_SUFFIXES))
    return [str(path.relative_to(entry)) for path in found]


def _segments(path: Path) -> tuple[Segment, ...]:
    with open_paced(str(path)) as file:
        segments = plan_file(file, path.name).segments
    items = path.with_name(METADATA)
    if path.suffix == ".distcp" and items.exists():
        size = path.stat().st_size
        return tuple(Segment(size * part // 8, size // 8) for part in range(8))
    return segments


def overwrite(path: Path, start: int, data: bytes, *, keep_time: bool = False) -> None:
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data)
    if keep_time:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def cuts(path: Path) -> list[int]:
    """Returns where a file is cut: at the boundaries of its structure, and beside them."""
    size = path.stat().st_size
    points = {0, 1, 4, 8, 64, size // 2, size - 30, size - 22, size - 1}
    for segment in _segments(path):
        points |= {segment.start, segment.start + 1, segment.start + segment.size}
    return sorted(point for point in points if 0 <= point < size)


def cut_at(name: str, point: int) -> Damage:
    return lambda entry: os.truncate(entry / name, point)


def write_at(name: str, start: int, data: bytes, *, keep_time: bool = False) -> Damage:
    return lambda entry: overwrite(entry / name, start, data, keep_time=keep_time)


def renamed(name: str) -> Damage:
    """A save that died before it gave its file the final name."""
    return lambda entry: _move(entry / name, Path(f"{entry / name}.tmp"))


def copied(name: str) -> Damage:
    return lambda entry: _copy(entry / name, Path(f"{entry / name}.tmp"))


def removed(name: str) -> Damage:
    return lambda entry: (entry / name).unlink()


def unreadable(name: str) -> Damage:
    return lambda entry: (entry / name).chmod(0)


def swapped(first: str, second: str) -> Damage:
    return lambda entry: _swap(entry / first, entry / second)


def rewritten(path: Path, text: str) -> Damage:
    return lambda _: _rewrite(path, text)


def not_a_number(name: str, segment: Segment, offset: int) -> Damage:
    return lambda entry: _put_nan(entry / name, segment, offset)


def structural(yard: Yard, random: Random) -> Iterator[Trial]:
    entry, names = yard.kept, tensor_files(yard.kept)
    for name in random.sample(names, min(FILES, len(names))):
        points = cuts(entry / name)
        for point in random.sample(points, min(7, len(points))):
            yield Trial("truncated", cut_at(name, point))
        size = (entry / name).stat().st_size
        for start in (0, 4, size - 22, size - 12):
            is_data = start > 0 and (entry / name).suffix == ".safetensors"
            if not is_data and (entry / name).suffix != ".distcp":
                yield Trial("garbled", write_at(name, start, random.randbytes(8)))
        yield Trial("permissions", unreadable(name))
    if entry.is_dir():
        yield from _of_folder(entry, names, random)
    if yard.tracker is not None:
        step = yard.step or 0
        for number in (yard.step_before, *range(step + 1, step + 6)):
            text = yard.tracker_text.replace(str(step), str(number))
            yield Trial("tracker", rewritten(yard.tracker, text))
        yield Trial("tracker", rewritten(yard.tracker, ""))


def _of_folder(entry: Path, names: list[str], random: Random) -> Iterator[Trial]:
    # whether a file that belongs to no set is needed, no format says
    alone = ("training_args.bin", "data.pt", "trainer_state.pt", "common.pt")
    required = [name for name in names if not name.endswith(alone)]
    metadata = [str(one.relative_to(entry)) for one in entry.rglob(METADATA)]
    for name in (*required, *metadata):
        yield Trial("missing", removed(name), after_proof=name in metadata)
    for name in random.sample(required, min(6, len(required))):
        yield Trial("leftover", copied(name))
        yield Trial("leftover", renamed(name))
    indexes = [one for one in entry.rglob("*.json") if one.name != "generation_config.json"]
    for path in indexes[:3]:
        size = path.stat().st_size
        for point in (1, size // 3, size // 2, size - 2):
            yield Trial("truncated", cut_at(str(path.relative_to(entry)), point))
    for first, second in pairwise(required):
        if Path(first).suffix == Path(second).suffix:
            is_named = Path(first).name != Path(second).name and Path(first).suffix != ".distcp"
            is_named = is_named and ("rank" in Path(first).name or "-of-" in first)
            yield Trial("swapped", swapped(first, second), after_proof=not is_named)


def content(yard: Yard, random: Random) -> Iterator[Trial]:
    for name in tensor_files(yard.kept):
        path = yard.kept / name
        segments = [one for one in _segments(path) if one.size >= 2 * REGION]
        for segment in random.sample(segments, min(FILES, len(segments))):
            position = segment.start + random.randrange(segment.size - REGION)
            has_sums = path.suffix != ".safetensors"
            for _ in range(2):
                bit = 1 << random.randrange(8)
                byte = bytes([_read(path, position, 1)[0] ^ bit])
                flip = write_at(name, position, byte, keep_time=True)
                yield Trial("bit flip", flip, after_proof=not has_sums)
            yield Trial("zeros", write_at(name, position, bytes(REGION)))
            if segment.numbers:
                offset = segment.start + 4 * random.randrange(segment.size // 4 - 1)
                yield Trial("NaN", not_a_number(name, segment, offset))


def _put_nan(path: Path, segment: Segment, offset: int) -> None:
    """Writes NaN as a run that has diverged would: with a correct checksum."""
    nan = struct.pack("<f", float("nan"))
    if path.suffix == ".safetensors":
        overwrite(path, offset, nan)
        return
    with zipfile.ZipFile(path) as archive:
        records = [(one, archive.read(one)) for one in archive.infolist()]
    with zipfile.ZipFile(path, "w") as archive:
        for info, data in records:
            start = offset - segment.start
            is_it = info.filename == segment.label
            archive.writestr(info, data[:start] + nan + data[start + 4 :] if is_it else data)


def _read(path: Path, start: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(size)


def _swap(first: Path, second: Path) -> None:
    between = first.with_name("between")
    first.rename(between)
    second.rename(first)
    between.rename(second)


def _move(source: Path, target: Path) -> None:
    source.rename(target)


def _rewrite(path: Path, text: str) -> None:
    path.write_text(text)


def sound(yard: Yard, random: Random) -> Iterator[tuple[str, bool, float]]:
    """Makes the newest checkpoint sound, or partly saved; yields how, and the clock."""
    for number in range(SOUND_PER_LAYOUT):
        yard.restore()
        files = [path for path in _files(yard.newest) if path.is_file()]
        match number % 5:
            case 0:
                yield "saved", True, LATER
            case 1:
                for path in files:
                    path.chmod(0o640)
                yield "other permissions", True, LATER
            case 2:
                if yard.newest.is_dir():
                    (yard.newest / "README.md").write_text("notes")
                yield "a file added", True, LATER
            case 3:
                victim = random.choice(files)
                os.truncate(victim, random.randrange(victim.stat().st_size))
                yield "being saved", False, random.uniform(0, 14)
            case _:
                _remove_some(yard.newest, random.sample(files, random.randint(1, len(files))))
                yield "being saved", False, random.uniform(0, 14)


def _remove_some(entry: Path, files: list[Path]) -> None:
    """Removes what a save has not written yet; the rest was written just now."""
    for path in files:
        path.unlink()
    now = time.time()
    for path in _files(entry) if entry.exists() else ():
        os.utime(path, (now, now))


def _files(entry: Path) -> list[Path]:
    return sorted(entry.rglob("*")) if entry.is_dir() else [entry]


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


def run(source: Path) -> str:
    """Runs all trials on the layouts in `source`; returns the page."""
    with ProcessPoolExecutor(WORKERS) as pool:
        results = list(pool.map(run_layout, sorted(source.iterdir())))
    for result in results:
        misses = [miss for tally in result.tallies.values() for miss in tally.missed]
        for line in (*result.accused, *result.unproved, *misses):
            print(line, file=sys.stderr)
    return page(results)


def run_layout(layout: Path) -> LayoutResult:
    """Runs all trials on one layout."""
    random = Random(f"{SEED} {layout.name}")  # noqa: S311 - which damage, no secret
    result = LayoutResult(layout.name)
    with tempfile.TemporaryDirectory() as folder:
        yard = Yard(layout.name, layout, Path(folder))
        for trial in (*structural(yard, random), *content(yard, random)):
            _judge(yard, trial, result.tallies.setdefault(trial.kind, Tally()))
        for what, is_complete, later in sound(yard, random):
            result.healthy[what] += 1
            found = yard.prove(later=later).checkpoints
            mine = [one for one in found if one.path == str(yard.newest)]
            if any(one.damages for one in mine):
                result.accused.append(f"{layout.name}, {what}: {mine}")
            elif is_complete and mine[0].state != "proved":
                result.unproved.append(f"{layout.name}, {what}: {mine}")
        result.slowest = yard.slowest
    print(layout.name, sum(tally.trials for tally in result.tallies.values()), flush=True)
    return result


def _judge(yard: Yard, trial: Trial, tally: Tally) -> None:
    yard.restore()
    if trial.after_proof:
        yard.learn()
    trial.damage(yard.newest)
    found = yard.prove(after_proof=trial.after_proof)
    tally.trials += 1
    newest = next((one for one in found.checkpoints if one.path == str(yard.newest)), None)
    if found.tracker_problem or (newest is not None and newest.damages):
        tally.by_content += 1
    elif newest is None or newest.state in ("incomplete", "unreadable"):
        tally.as_incomplete += 1
    else:
        tally.missed.append(f"{yard.framework}: {trial.kind}: {newest}")


HEAD = """\
# Damages of checkpoints

Written by `python bench/damages.py FOLDER`, on checkpoints that `bench/checkpoint_writers.py` wrote
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
"""


def page(results: list[LayoutResult]) -> str:
    """Returns docs/damages.md."""
    table = "| {} | trials | found by content | incomplete | missed |\n|---|--:|--:|--:|--:|"
    kinds = (*STRUCTURE, *CONTENT)
    healthy = sum((result.healthy for result in results), Counter[str]())
    listed = ", ".join(f"{count} {what}" for what, count in sorted(healthy.items()))
    accused = sum(len(result.accused) for result in results)
    unproved = sum(len(result.unproved) for result in results)
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
            f"{accused} were accused of a damage; {unproved} whole ones were not proved",
            "at once, because a file was added after the marker of a whole save.",
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
    return f"| {name} | {' | '.join(map(str, counts))} |"


if __name__ == "__main__":
    PAGE.write_text(run(Path(sys.argv[1])))
