"""Random copies of one log, in any order and cut into nights, against a plain reference that knows all of them.

A copy is cleaned as Kafka's cleaner does, cut short, begins later, ends in a tail that a newer leader never had, has a
damaged batch, comes twice, or is a dump of rows. In batches of message formats 0 and 1, and in some of format 2, no
leader epoch is written: the replica's checkpoint says it, or nothing does. --count says how many sets; a few of them
as whole nights.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from coordinator_core.bytes.codec import encode_key, encode_value
from coordinator_core.bytes.log.batch import Record, build_batch
from coordinator_core.bytes.log.copies import UNKNOWN_EPOCH
from coordinator_core.bytes.log.records import iter_records
from jobs.bronze.capture import capture
from jobs.delta.warehouse import Warehouse
from jobs.settings import load_settings
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.tables import TABLES
from tests.cases.harness import Ledger
from tests.cases.test_copies import contents
from tests.coordinator_core.bytes.log.test_legacy import message
from tests.coordinator_core.group_records import record
from tests.jobs.builders import damaged
from tests.jobs.dump_builders import kafka_rows, write_json_lines
from tests.jobs.in_process import in_process
from tests.lengths import how_many

COPY_SETS: Final = how_many(8)
FAILED_ONCE: Final = (19, 168, 276, 647, 1442, 1700, 1991)
"""Two dumps of which one has no row that the other lacks; a damaged batch at the end of a segment, before batches of an
epoch that a newer one cuts away; a damaged batch at whose base offset a batch of an older epoch, or a dump, has a
record; a tail with another record than the dump that it replaced until it was cut away."""
WITHOUT_EPOCHS_FAILED_ONCE: Final = (774, 811)
"""The tail of a replica with a checkpoint came before a copy without one, which has the same offsets, and was cut away
by the checkpoint of a third."""
FEW_CHECKPOINTS_FAILED_ONCE: Final = (115, 180, 261, 343, 395)
"""The checkpoint that cuts a tail away came after a copy without one that the tail had kept out, or had the same bytes
as the tail."""
NIGHTS_FAILED_ONCE: Final = (88,)
"""A damaged batch next to the record of a dump, which looked like a clock that went back."""
PARTS: Final = 4
WHOLE_NIGHTS: Final = max(2, COPY_SETS // 20)
BEGIN_MS: Final = 1_780_000_000_000
NIGHT: Final = datetime(2026, 11, 25, tzinfo=UTC)


@dataclass(frozen=True)
class Written:
    """A batch of a copy."""

    base_offset: int
    last_offset: int
    epoch: int
    records: tuple[Record, ...]
    is_damaged: bool = False
    magic: int = 2
    has_epoch: bool = True
    """Is the leader epoch written in it? In message formats 0 and 1 there is no place for it."""

    def data(self) -> bytes:
        """On disk."""
        if self.magic < 2:
            return b"".join(
                message(it.offset, it.value, key=it.key, magic=self.magic, timestamp_ms=it.timestamp_ms)
                for it in self.records
            )
        whole = build_batch(
            self.records,
            leader_epoch=self.epoch if self.has_epoch else UNKNOWN_EPOCH,
            base_offset=self.base_offset,
            last_offset=self.last_offset,
        )
        return damaged(whole) if self.is_damaged else whole

    def of(self, checkpoint: Sequence[tuple[int, int]]) -> "Written":
        """The same with the epoch that a reader of its copy knows."""
        if self.has_epoch:
            return self
        own = [epoch for epoch, offset in checkpoint if offset <= self.base_offset]
        return replace(self, epoch=own[-1] if own else UNKNOWN_EPOCH)

    @property
    def known_epoch(self) -> int | None:
        """Its leader epoch; None where nothing says it."""
        return None if self.epoch == UNKNOWN_EPOCH else self.epoch

    @property
    def offsets(self) -> tuple[int, ...]:
        """Of its records."""
        return tuple(it.offset for it in self.records)


@dataclass(frozen=True)
class Copy:
    """One source."""

    batches: tuple[Written, ...]
    checkpoint: tuple[tuple[int, int], ...] = ()
    is_dump: bool = False
    cuts: tuple[int, ...] = field(default=())
    """Batches with which further segment files begin."""

    def write(self, root: Path) -> dict[str, tuple[str, ...]]:
        """As files; the setting that names them."""
        folder = root / f"{TOPIC}-0"
        folder.mkdir(parents=True)
        starts = [0, *self.cuts, len(self.batches)]
        for first, after in pairwise(starts):
            if first < after:
                name = f"{self.batches[first].base_offset:020d}.log"
                (folder / name).write_bytes(b"".join(batch.data() for batch in self.batches[first:after]))
        if self.checkpoint:
            lines = [f"{epoch} {offset}" for epoch, offset in self.checkpoint]
            (folder / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")
        if self.is_dump:
            path = write_json_lines(kafka_rows(root), root.parent / f"{root.name}.jsonl")
            return {"dumps": (str(path),)}
        return {"segments": (str(root),)}


def commit(offset: int, key: int, number: int) -> Record:
    """A commit of a group, as one of few keys."""
    value = {"offset": number, "leader_epoch": -1, "metadata": "", "commit_timestamp": BEGIN_MS + offset * 1_000}
    fields = {"group": f"g{key % 2}", "topic": "in", "partition": key // 2}
    _, key_fields, value_fields = record(RecordType.OFFSET_COMMIT, fields, value)
    assert value_fields is not None
    encoded = encode_value(TOPIC, RecordType.OFFSET_COMMIT, 3, value_fields)
    at_ms = BEGIN_MS + offset * 1_000
    return Record(offset, at_ms, encode_key(TOPIC, RecordType.OFFSET_COMMIT, key_fields), encoded)


def batches_from(random: Random, offset: int, count: int, epoch: int) -> Iterator[Written]:
    """Batches of random sizes, one behind the other."""
    for _ in range(count):
        size = random.randint(1, 4)
        records = tuple(commit(offset + i, random.randrange(6), random.randrange(1_000)) for i in range(size))
        yield Written(offset, offset + size - 1, epoch, records)
        offset += size


def cleaned(batches: Sequence[Written], before: int) -> tuple[Written, ...]:
    """As Kafka's cleaner leaves the first ones: of each key the last record, no batch that is empty."""
    newest = {it.key: it.offset for batch in batches[:before] for it in batch.records}
    left = []
    for index, batch in enumerate(batches):
        kept = tuple(it for it in batch.records if index >= before or newest[it.key] == it.offset)
        if kept:
            left.append(replace(batch, records=kept))
    return tuple(left)


def with_another_value(random: Random, batches: Sequence[Written]) -> tuple[Written, ...]:
    """One record replaced by a later one."""
    chosen = random.randrange(len(batches))
    records = list(batches[chosen].records)
    index = random.randrange(len(records))
    records[index] = replace(records[index], value=b"another", timestamp_ms=records[index].timestamp_ms + 1)
    return (*batches[:chosen], replace(batches[chosen], records=tuple(records)), *batches[chosen + 1 :])


def copies_of_a_log(random: Random) -> list[Copy]:
    """Some copies; each epoch but the last has a leader that may have died with a tail of its own."""
    log: list[Written] = []
    starts: list[tuple[int, int]] = []
    tails: list[tuple[Written, ...]] = []
    for epoch in range(random.randint(1, 3)):
        offset = log[-1].last_offset + 1 if log else 0
        starts.append((epoch, offset))
        log += batches_from(random, offset, random.randint(2, 6), epoch)
        tail = batches_from(random, log[-1].last_offset + 1, random.randint(1, 4), epoch)
        tails.append((*log, *tail))
    copies = []
    other = Random(str(log))
    for _ in range(random.randint(2, 4)):
        is_tail = len(starts) > 1 and random.random() < 0.3
        if is_tail:
            epoch = random.randrange(len(starts) - 1)
            batches, own = tails[epoch], tuple(starts[: epoch + 1])
        else:
            batches, own = tuple(log), tuple(starts)
        if random.random() < 0.5:
            batches = cleaned(batches, random.randint(1, len(batches) - 1))
        if random.random() < 0.3 and not is_tail:
            batches = batches[: random.randint(1, len(batches))]
        if random.random() < 0.2:
            batches = batches[random.randrange(len(batches)) :]
        own = tuple(it for it in own if it[1] <= batches[-1].last_offset)
        if random.random() < 0.25 and len(batches) > 2:
            bad = random.randrange(1, len(batches) - 1)
            batches = (*batches[:bad], replace(batches[bad], is_damaged=True), *batches[bad + 1 :])
        is_dump = len(starts) == 1 and random.random() < 0.3 and not any(batch.is_damaged for batch in batches)
        if len(starts) > 1 and not any(batch.is_damaged for batch in batches):
            # rows without epochs say nothing of tails: what the log has no record for is taken from them
            is_dump = other.random() < 0.25
        elif is_dump and other.random() < 0.3:
            batches = with_another_value(other, batches)
        cuts = (random.randrange(1, len(batches)),) if len(batches) > 1 and random.random() < 0.4 else ()
        copies.append(Copy(batches, own if random.random() < 0.5 else (), is_dump, cuts))
    return copies


def in_formats(random: Random, log: Sequence[Written], formats: Sequence[tuple[int, bool]]) -> tuple[Written, ...]:
    """The same log in other message formats, by leader epoch; a message of format 0 or 1 is a batch of its own."""
    found: list[Written] = []
    for batch in log:
        magic, has_epoch = formats[batch.epoch]
        if magic == 2:
            found.append(replace(batch, has_epoch=has_epoch))
            continue
        for it in batch.records:
            records = (replace(it, timestamp_ms=it.timestamp_ms if magic else -1),)
            found.append(Written(it.offset, it.offset, batch.epoch, records, magic=magic, has_epoch=False))
    return tuple(found)


def copies_without_epochs(random: Random) -> list[Copy]:
    """The same of logs in whose batches leader epochs are missing; most copies have a checkpoint, some have none."""
    return _without_epochs(random, checkpoint_share=0.8, short_share=0.2)


def copies_of_few_checkpoints(random: Random) -> list[Copy]:
    """The same; many copies have no checkpoint, and of a log that has one little may be there."""
    return _without_epochs(random, checkpoint_share=0.5, short_share=0.6, least=3)


def _without_epochs(random: Random, *, checkpoint_share: float, short_share: float, least: int = 2) -> list[Copy]:
    epoch_count = random.randint(2, 3)
    formats = sorted(random.choice([(0, False), (1, False), (2, False), (2, True)]) for _ in range(epoch_count))
    log: list[Written] = []
    starts: list[tuple[int, int]] = []
    tails: list[tuple[Written, ...]] = []
    for epoch in range(epoch_count):
        offset = log[-1].last_offset + 1 if log else 0
        starts.append((epoch, offset))
        log += batches_from(random, offset, random.randint(2, 4), epoch)
        tail = batches_from(random, log[-1].last_offset + 1, random.randint(1, 4), epoch)
        tails.append((*log, *tail))
    copies = []
    for index in range(random.randint(least, 4)):
        epoch = random.randrange(epoch_count - 1) if index == 0 or random.random() < 0.3 else epoch_count - 1
        is_tail = epoch < epoch_count - 1
        batches = in_formats(random, tails[epoch] if is_tail else log, formats)
        if random.random() < 0.4:
            batches = cleaned(batches, random.randint(1, len(batches) - 1))
        if random.random() < short_share and not is_tail:
            batches = batches[: random.randint(1, len(batches))]
        own = tuple(it for it in starts[: epoch + 1] if it[1] <= batches[-1].last_offset)
        cuts = (random.randrange(1, len(batches)),) if len(batches) > 1 and random.random() < 0.4 else ()
        # where neither batch nor checkpoint says an epoch, only single messages can be compared one by one
        is_needed = (2, False) in formats or (is_tail and formats[-1][0] == 2)
        has_checkpoint = random.random() < checkpoint_share or is_needed
        copies.append(Copy(batches, own if has_checkpoint else (), cuts=cuts))
    return copies


# --- the reference


@dataclass(frozen=True)
class Expected:
    """What bronze and coverage must say."""

    records: dict[int, tuple[Any, ...]]
    """By offset: leader epoch (None of a dump), key and value."""
    compacted: frozenset[int]
    """Offsets at which a copy that is of the log shows that there is nothing any more."""
    bad: frozenset[int]


def with_known_epochs(copies: Sequence[Copy]) -> list[Copy]:
    """With the epochs that checkpoints say: of the same bytes in several copies, that of one says it of all."""
    copies = [replace(copy, batches=tuple(it.of(copy.checkpoint) for it in copy.batches)) for copy in copies]
    epochs: dict[bytes, int] = {}
    for batch in (it for copy in copies for it in copy.batches if not it.has_epoch):
        epochs[batch.data()] = max(batch.epoch, epochs.get(batch.data(), UNKNOWN_EPOCH))
    return [
        replace(copy, batches=tuple(replace(it, epoch=epochs.get(it.data(), it.epoch)) for it in copy.batches))
        for copy in copies
    ]


def expected(copies: Sequence[Copy]) -> Expected:
    """By the rules of the documentation, with all copies at hand."""
    copies = with_known_epochs(copies)
    logs = [copy for copy in copies if not copy.is_dump]
    intact = [batch for copy in logs for batch in copy.batches if not batch.is_damaged]
    checkpoint = max((copy.checkpoint for copy in logs), key=lambda it: (it[-1][0] if it else -1, len(it)), default=())
    starts: dict[int, int] = {}
    for batch in (it for it in intact if it.known_epoch is not None):
        starts[batch.epoch] = min(batch.base_offset, starts.get(batch.epoch, batch.base_offset))
    starts |= dict(checkpoint)

    def is_of_the_log(batch: Written) -> bool:
        is_known = batch.known_epoch is not None
        return not any(
            is_known and epoch > batch.epoch and start <= batch.last_offset for epoch, start in starts.items()
        )

    def rank(batch: Written) -> tuple[int, int, bytes]:
        return batch.epoch, len(batch.records), batch.data()

    best: dict[tuple[int, int], Written] = {}
    for batch in filter(is_of_the_log, intact):
        place = batch.base_offset, batch.last_offset
        if place not in best or rank(batch) > rank(best[place]):
            best[place] = batch
    records: dict[int, tuple[Any, ...]] = {}
    holes: set[int] = set()
    bad: set[int] = set()

    def shown(offsets: Iterable[int], epoch: int | None) -> set[int]:
        """Offsets of which a copy speaks that goes on with an epoch: behind its end it is of another log."""
        ends = [start for newer, start in starts.items() if epoch is not None and newer > epoch]
        return {offset for offset in offsets if offset < min(ends, default=offset + 1)}

    epoch_at: dict[int, int | None] = {}
    for batch in best.values():
        records |= {it.offset: (batch.known_epoch, it.key, it.value) for it in batch.records}
        span = set(range(batch.base_offset, batch.last_offset + 1))
        epoch_at |= dict.fromkeys(span, batch.known_epoch)
        holes |= span - set(batch.offsets)
    for copy in logs:
        position = copy.batches[0].base_offset
        for index, batch in enumerate(copy.batches):
            epoch = next((it.known_epoch for it in copy.batches[index:] if not it.is_damaged), None)
            span = set(range(batch.base_offset, batch.last_offset + 1))
            holes |= shown(range(position, batch.base_offset), epoch)
            if batch.is_damaged:
                bad |= shown(span, epoch)
            elif is_of_the_log(batch):
                holes |= span - set(batch.offsets)
            position = batch.last_offset + 1
    of_dumps: dict[int, Record] = {}
    for copy in copies:
        if copy.is_dump:
            rows = [it for batch in copy.batches for it in batch.records]
            for it in rows:
                of_dumps[it.offset] = max(it, of_dumps.get(it.offset, it), key=_later)
            holes |= set(range(rows[0].offset, rows[-1].offset + 1)) - {it.offset for it in rows}
    # a row at an offset that a batch spans was in that batch before it was cleaned
    records = {at: (epoch_at.get(at), it.key, it.value) for at, it in of_dumps.items()} | records
    return Expected(records, frozenset(holes - records.keys()), frozenset(bad - records.keys()))


def _later(it: Record) -> tuple[Any, ...]:
    """Of two dumps that differ the later record counts."""
    return it.timestamp_ms, it.key, it.value


# --- what the product says


def records_of(rows: Iterable[dict[str, Any]]) -> dict[int, tuple[Any, ...]]:
    """By offset: leader epoch, key and value, of the intact batches of bronze."""
    found: dict[int, tuple[Any, ...]] = {}
    for row in rows:
        if row["crc_valid"]:
            for it in iter_records(row["batch"]):
                assert it.offset not in found
                found[it.offset] = (row["leader_epoch"], it.key, it.value)
    return found


def coverage_of(rows: Iterable[dict[str, Any]]) -> dict[int, str]:
    """By offset: what is said of it."""
    return {at: row["kind"] for row in rows for at in range(row["from_offset"], row["to_offset"] + 1)}


def in_nights(random: Random, copies: Sequence[int], *, is_one_run: bool) -> list[list[int]]:
    """Copies in any order, some twice, cut into nights."""
    order = [*copies, *random.sample(copies, random.randint(0, 1))]
    random.shuffle(order)
    if is_one_run:
        return [list(dict.fromkeys(order))]
    nights: list[list[int]] = []
    for index in order:
        if nights and index not in nights[-1] and random.random() < 0.3:
            nights[-1].append(index)
        else:
            nights.append([index])
    return nights


def sources_of(night: Sequence[int], written: Sequence[dict[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    """The settings of one night."""
    together: dict[str, tuple[str, ...]] = {}
    for index in night:
        for name, paths in written[index].items():
            together[name] = (*together.get(name, ()), *paths)
    return together


@pytest.mark.parametrize("part", range(PARTS))
def test_bronze_and_coverage_follow_from_all_copies_in_any_order(tmp_path: Path, part: int) -> None:
    """bronze has what the reference has, coverage says CAPTURED of that alone, and never hides what is missing."""
    for seed in dict.fromkeys((*range(part, COPY_SETS, PARTS), *(it for it in FAILED_ONCE if it % PARTS == part))):
        random = Random(seed)
        compare_with_the_reference(tmp_path, seed, random, copies_of_a_log(random))


@pytest.mark.parametrize("part", range(PARTS))
def test_so_do_those_in_whose_batches_no_leader_epoch_is_written(tmp_path: Path, part: int) -> None:
    """The checkpoint of each replica says the epochs of its batches, also where its batches come before another's."""
    once = (it for it in WITHOUT_EPOCHS_FAILED_ONCE if it % PARTS == part)
    for seed in dict.fromkeys((*range(part, COPY_SETS // 2, PARTS), *once)):
        random = Random(f"no epochs {seed}")
        compare_with_the_reference(tmp_path, seed, random, copies_without_epochs(random))


@pytest.mark.parametrize("part", range(PARTS))
def test_so_do_those_whose_checkpoints_come_in_other_nights(tmp_path: Path, part: int) -> None:
    """A tail that a checkpoint cuts away in a later night leaves nothing behind and has hidden nothing."""
    once = (it for it in FEW_CHECKPOINTS_FAILED_ONCE if it % PARTS == part)
    for seed in dict.fromkeys((*range(part, COPY_SETS // 4, PARTS), *once)):
        random = Random(f"few checkpoints {seed}")
        compare_with_the_reference(tmp_path, seed, random, copies_of_few_checkpoints(random), may_lose_holes=True)


def compare_with_the_reference(
    tmp_path: Path, seed: int, random: Random, copies: Sequence[Copy], *, may_lose_holes: bool = False
) -> None:
    """Capture copies in one run and in nights. `may_lose_holes`: what a copy said of a hole at which a tail without
    epochs had a record is forgotten once that is cut away: it is MISSING then, as if nobody had seen it."""
    session = in_process()
    wanted = expected(copies)
    written = [copy.write(tmp_path / f"{seed}" / f"copy-{index}") for index, copy in enumerate(copies)]
    said = []
    for attempt in range(2):
        warehouse = Warehouse(str(tmp_path / f"{seed}" / f"warehouse-{attempt}"))
        nights = in_nights(random, range(len(copies)), is_one_run=attempt == 0)
        for number, night in enumerate(nights):
            options = {"cluster_id": "c", "warehouse": warehouse.root, **sources_of(night, written)}
            capture(
                session,
                warehouse,
                load_settings(options, environment={}),
                capture_id=f"night-{number}",
                captured_at=NIGHT + timedelta(days=number),
            )
        place = f"seed {seed}, nights {nights}"
        found = records_of(warehouse.read(TABLES["bronze.record_batches"]).to_pylist())
        assert found == wanted.records, place
        reported = coverage_of(warehouse.read(TABLES["bronze.coverage"]).to_pylist())
        assert {at for at, kind in reported.items() if kind == "CAPTURED"} == found.keys(), place
        assert {at for at, kind in reported.items() if kind == "COMPACTED"} <= wanted.compacted, place
        assert {at for at, kind in reported.items() if kind == "CORRUPT"} <= wanted.bad, place
        if may_lose_holes:
            reported = {at: kind for at, kind in reported.items() if kind not in ("COMPACTED", "MISSING")}
        said.append((reported, place))
    assert said[0][0] == said[1][0], said


@pytest.mark.parametrize(
    ("made", "seed"),
    [
        *((copies_of_a_log, seed) for seed in sorted({*range(WHOLE_NIGHTS), *NIGHTS_FAILED_ONCE})),
        *((copies_without_epochs, seed) for seed in range(WHOLE_NIGHTS // 2)),
    ],
)
def test_silver_and_gold_follow_from_all_copies_in_any_order(
    tmp_path: Path, made: Callable[[Random], list[Copy]], seed: int
) -> None:
    """Whole nights: what other batches replaced leaves nothing behind."""
    random = Random(f"nights {seed}")
    copies = made(random)
    written = [copy.write(tmp_path / f"copy-{index}") for index, copy in enumerate(copies)]
    tables = []
    for attempt in range(2):
        ledger = Ledger(tmp_path / f"warehouse-{attempt}")
        nights = in_nights(random, range(len(copies)), is_one_run=attempt == 0)
        for number, night in enumerate(nights, start=1):
            ledger.night(number=number, **sources_of(night, written))
        tables.append(contents(ledger))
    assert tables[0] == tables[1]
