"""The data topics of a simulation. Nothing reads payloads: the end offset of a partition follows from the time.

Offsets are counted in billionths of a record, so that no rounding of floats can make two machines differ.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.coordinator.image import MetadataImage, Topic, image_of
from coordinator_core.live.share_partition.state import AbortedTransaction, LogBatch
from simulator.simulation.random_streams import kafka_uuid, stream
from simulator.simulation.scenario import TopicSpec

NANO: Final = 10**9
REPLICAS_MAX: Final = 3
"""default.replication.factor, if there are so many brokers."""
FIRST_PRODUCER_ID: Final = 500
"""The producer id of the producer that fills partition 0 of a topic in transactions; no group has its transactional
id."""


@dataclass(slots=True)
class Phase:
    """A phase of steady growth: from `from_ms` on, the partition grows from `nano_records` at this rate."""

    from_ms: int
    nano_records: int
    nano_records_per_ms: int


@dataclass(slots=True)
class DataPartition:
    """One partition: its rates over time, its deletions, and its poison records."""

    spec: TopicSpec
    phases: list[Phase]
    producer_id: int
    """Of who fills it in transactions."""
    checked_from_ms: int
    check_interval_ms: int
    """When brokers delete what is beyond its retention."""
    deletions: list[tuple[int, int]] = field(default_factory=list)
    """(time, log start offset from then on), in the order of time."""
    poison: list[int] = field(default_factory=list)
    """The offsets of single poison records, sorted."""
    added_ms: list[int] = field(default_factory=list)
    """The times at which brokers themselves added a record (dead letters), in order."""

    def end_offset(self, now_ms: int) -> int:
        """The offset of the next record. Batches are appended whole."""
        growth_phase = self.phases[0]
        for later in reversed(self.phases):
            if later.from_ms <= now_ms:
                growth_phase = later
                break
        if now_ms < growth_phase.from_ms:
            return 0
        nano_records = growth_phase.nano_records + (now_ms - growth_phase.from_ms) * growth_phase.nano_records_per_ms
        batch_records = self.spec.batch_records
        produced = self._offset_after(nano_records // (NANO * batch_records) * batch_records)
        return produced + bisect_right(self.added_ms, now_ms)

    def _offset_after(self, record_count: int) -> int:
        """The offset after so many records: each transaction takes one more, for its marker."""
        size = self.spec.transaction_records
        return record_count + (record_count // size if size else 0)

    def readable_end_offset(self, now_ms: int, *, is_committed: bool) -> int:
        """The end of what a fetch may read: for read_committed the last stable offset (where an open transaction
        begins), else the high watermark."""
        end, unit = self.end_offset(now_ms), self.spec.transaction_records + 1
        return end // unit * unit if is_committed and self.has_markers else end

    def growth_ms(self, offset: int, now_ms: int, until_ms: int, *, is_committed: bool) -> int:
        """The first time after now at which a fetch from an offset finds a record; `until_ms` if there is none before
        that.
        """
        first_ms, last_ms = now_ms + 1, until_ms
        while first_ms < last_ms:
            middle_ms = (first_ms + last_ms) // 2
            if self.readable_end_offset(middle_ms, is_committed=is_committed) > offset:
                last_ms = middle_ms
            else:
                first_ms = middle_ms + 1
        return last_ms

    def start_offset(self, now_ms: int) -> int:
        """The log start offset: retention takes effect at the checks."""
        start = max((offset for deleted_ms, offset in self.deletions if deleted_ms <= now_ms), default=0)
        if self.spec.retention_ms is not None:
            since_check_ms = (now_ms - self.checked_from_ms) % self.check_interval_ms
            start = max(start, self.end_offset(now_ms - since_check_ms - self.spec.retention_ms))
        return min(start, self.end_offset(now_ms))

    def next_poison_offset(self, from_offset: int, to_offset: int) -> int | None:
        """The first poison record from one offset to another (exclusive), or None."""
        found = [offset for offset in self.poison if from_offset <= offset < to_offset][:1]
        every = self.spec.poison_every
        if every:
            following = from_offset + (every - 1 - from_offset) % every
            if following < to_offset:
                found.append(following)
        return min(found, default=None)

    @property
    def has_markers(self) -> bool:
        return self.spec.transaction_records > 0

    def is_marker(self, offset: int) -> bool:
        """Whether this offset is the marker of a transaction, which clients never see."""
        size = self.spec.transaction_records
        return size > 0 and offset % (size + 1) == size

    def is_aborted(self, offset: int) -> bool:
        """Whether this offset belongs to a transaction that is aborted, its marker included."""
        every = self.spec.abort_every
        return every > 0 and offset // (self.spec.transaction_records + 1) % every == every - 1

    def log_batches(
        self, from_offset: int, record_count_max: int, now_ms: int, *, is_committed: bool = False
    ) -> list[LogBatch]:
        """The record batches from the one that contains an offset, as a fetch of so many records finds them.

        `is_committed`: up to the last stable offset only.
        """
        size, transaction_size = self.spec.batch_records, self.spec.transaction_records
        end = self.readable_end_offset(now_ms, is_committed=is_committed)
        batches: list[LogBatch] = []
        # each transaction begins a batch
        begin = from_offset // (transaction_size + 1) * (transaction_size + 1) if transaction_size else 0
        place = from_offset - begin
        first = from_offset if self.is_marker(from_offset) else begin + place // size * size
        first = max(first, self.start_offset(now_ms))
        while first < end and (not batches or batches[-1].last_offset - from_offset + 1 < record_count_max):
            if self.is_marker(first):
                batches.append(LogBatch(first, first, self.producer_id, True, self.is_aborted(first)))
                first += 1
                continue
            begin = first // (transaction_size + 1) * (transaction_size + 1) if transaction_size else 0
            last = min(begin + ((first - begin) // size + 1) * size, end) - 1
            batches.append(LogBatch(first, last, self.producer_id, True) if transaction_size else LogBatch(first, last))
            first = last + 1
        return batches

    def aborted_transactions(self, batches: Sequence[LogBatch]) -> list[AbortedTransaction]:
        """The aborted transactions to which the batches belong, as a fetch response lists them."""
        unit = self.spec.transaction_records + 1
        aborted = (batch.first_offset for batch in batches if self.has_markers and self.is_aborted(batch.first_offset))
        begins = dict.fromkeys(offset // unit * unit for offset in aborted)
        return [AbortedTransaction(self.producer_id, begin) for begin in begins]

    def set_rate(self, from_ms: int, records_per_second: float) -> None:
        """Grow at another rate from now on."""
        last = self.phases[-1]
        nano_records = last.nano_records + (from_ms - last.from_ms) * last.nano_records_per_ms
        self.phases.append(Phase(from_ms, nano_records, _per_ms(records_per_second)))


def replicas_of(topic: str, partition: int, broker_count: int) -> tuple[int, ...]:
    """The brokers of a partition, the preferred leader first."""
    first = partition if topic.startswith("__") else sum(topic.encode()) + partition
    return tuple((first + index) % broker_count + 1 for index in range(min(REPLICAS_MAX, broker_count)))


def _per_ms(records_per_second: float) -> int:
    return round(records_per_second * (NANO // 1000))


class Topics:
    """All data topics, as clients, share partitions and coordinators see them."""

    def __init__(
        self,
        specs: tuple[TopicSpec, ...],
        *,
        start_ms: int,
        retention_check_interval_ms: int,
        seed: int,
        absent: frozenset[str] = frozenset(),
        brokers: int = 1,
        racks: Sequence[str] = (),
    ) -> None:
        """`absent`: names of topics that are created later (`create`). `racks`: those of the brokers, in turns."""
        self._brokers = brokers
        self._racks = tuple(racks)
        self.fenced: set[int] = set()
        """Fenced brokers, whose racks are not in the metadata."""
        self.start_ms = start_ms
        self.retention_check_interval_ms = retention_check_interval_ms
        self.specs = {spec.name: spec for spec in specs}
        self._seed = seed
        self._ids: dict[str, str] = {}
        """Name -> the id of the topic, or of the last topic of that name if it was deleted."""
        self._names: dict[str, str] = {}
        """Topic id -> name, including deleted topics."""
        self._incarnations: dict[str, int] = {}
        """Name -> how often a topic of this name was created."""
        self.created_ms = start_ms
        """The time at which the last topic was created."""
        self._created_ms: dict[str, int] = {}
        self._partitions: dict[TopicPartition, DataPartition] = {}
        self._counts: dict[str, int] = {}
        for spec in specs:
            if spec.name not in absent:
                self._make(spec, spec.partitions, start_ms)

    def _make(self, spec: TopicSpec, partition_count: int, now_ms: int) -> None:
        incarnation = self._incarnations.get(spec.name, 0)
        self._incarnations[spec.name] = incarnation + 1
        actor = (spec.name, incarnation) if incarnation else (spec.name,)
        self._ids[spec.name] = topic_id = kafka_uuid(stream(self._seed, "topic", *actor))
        self._names[topic_id] = spec.name
        self._created_ms[spec.name] = self.created_ms = now_ms
        self._add(spec, range(partition_count), now_ms, spec.rate / partition_count)

    def _add(self, spec: TopicSpec, numbers: range, now_ms: int, rate: float) -> None:
        for number in numbers:
            incarnation = self._incarnations[spec.name] - 1
            actor = (spec.name, number, incarnation) if incarnation else (spec.name, number)
            draws = stream(self._seed, "partition", *actor)
            phase = draws.randrange(NANO * spec.batch_records)
            self._partitions[TopicPartition(spec.name, number)] = DataPartition(
                spec,
                [Phase(now_ms, phase, _per_ms(rate))],
                FIRST_PRODUCER_ID + number,
                self.start_ms,
                self.retention_check_interval_ms,
            )
        self._counts[spec.name] = numbers.stop

    # --- queries of clients ---

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic; 0 if it does not exist."""
        return self._counts.get(topic, 0)

    def topic_id(self, topic: str) -> str:
        """The id of a topic; for a deleted topic, its last id."""
        return self._ids[topic]

    def name_of(self, topic_id: str) -> str:
        """The topic with this id; the id, if the topic was made again."""
        return next((name for name, its_id in self._ids.items() if its_id == topic_id), topic_id)

    def names(self) -> Mapping[str, str]:
        """Topic id -> name: a live view, with the deleted topics."""
        return self._names

    def replica_racks(self, topic: str) -> tuple[frozenset[str], ...]:
        """The racks of each partition's replicas, "" for that of a fenced broker; empty if brokers have none."""
        if not self._racks:
            return ()
        return tuple(
            frozenset(map(self._rack, replicas_of(topic, number, self._brokers)))
            for number in range(self._counts.get(topic, 0))
        )

    def _rack(self, broker_id: int) -> str:
        return "" if broker_id in self.fenced else self._racks[(broker_id - 1) % len(self._racks)]

    def exists(self, at: TopicPartition) -> bool:
        return at.partition < self._counts.get(at.topic, 0)

    def made_since(self, topic: str, since_ms: int) -> bool:
        """Whether this topic was created at or after a time: state of an earlier topic of the same name is void."""
        return self.created_ms >= since_ms and self._created_ms.get(topic, -1) >= since_ms

    def partition(self, at: TopicPartition) -> DataPartition:
        return self._partitions[at]

    def end_offset(self, at: TopicPartition, now_ms: int) -> int:
        return self._partitions[at].end_offset(now_ms)

    def start_offset(self, at: TopicPartition, now_ms: int) -> int:
        return self._partitions[at].start_offset(now_ms)

    def partitions(self) -> Iterator[TopicPartition]:
        """All partitions, by topic as in the scenario, then by number."""
        for name, count in self._counts.items():
            yield from (TopicPartition(name, number) for number in range(count))

    def image(self, version: int) -> MetadataImage:
        """The current metadata image, for coordinators."""
        return image_of((Topic(name, self._ids[name], count) for name, count in self._counts.items()), version)

    # --- dead letters ---

    def are_dead_letters_enabled(self, topic: str) -> bool:
        """Whether share groups may copy dead letters to this topic."""
        return self.specs[topic].dead_letters

    def add_records(self, at: TopicPartition, count: int, now_ms: int) -> None:
        self._partitions[at].added_ms += [now_ms] * count

    # --- changes by faults ---

    def create(self, topic: str, now_ms: int, partition_count: int | None = None) -> int:
        """Create the topic, with a new id and empty logs; returns its number of partitions."""
        spec = self.specs[topic]
        count = spec.partitions if partition_count is None else partition_count
        self._make(spec, count, now_ms)
        return count

    def create_internal(self, spec: TopicSpec, now_ms: int) -> None:
        """Create a topic of an application, which the scenario does not name."""
        self.specs[spec.name] = spec
        self._make(spec, spec.partitions, now_ms)

    def delete(self, topic: str, now_ms: int) -> None:
        """Delete the topic. Queries for its partitions are still answered, from their last state."""
        for number in range(self._counts.pop(topic)):
            self._partitions[TopicPartition(topic, number)].set_rate(now_ms, 0.0)

    def stall(self, topic: str, partition: int | None, from_ms: int, until_ms: int) -> None:
        """Stop production for a while."""
        for at, data in self._partitions.items():
            if at.topic == topic and partition in {None, at.partition}:
                rate = data.phases[-1].nano_records_per_ms
                data.set_rate(from_ms, 0.0)
                data.phases.append(Phase(until_ms, data.phases[-1].nano_records, rate))

    def add_partitions(self, topic: str, count: int, now_ms: int) -> None:
        """Let the topic have `count` partitions from now on, and spread its records over all of them."""
        spec = self.specs[topic]
        for number in range(self._counts[topic]):
            self._partitions[TopicPartition(topic, number)].set_rate(now_ms, spec.rate / count)
        self._add(spec, range(self._counts[topic], count), now_ms, spec.rate / count)

    def add_poison(self, at: TopicPartition, offset: int) -> None:
        poison = self._partitions[at].poison
        poison.append(offset)
        poison.sort()

    def delete_records(self, at: TopicPartition, offset: int, now_ms: int) -> int:
        """Let the log begin at `offset` from now on, or at its end if that is lower; returns the log start offset."""
        start = min(offset, self.end_offset(at, now_ms))
        self._partitions[at].deletions.append((now_ms, start))
        return start
