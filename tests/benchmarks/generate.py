"""Logs to benchmark with, where no larger ones are at hand: a pure function of its numbers."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from coordinator_core.bytes import codec
from coordinator_core.bytes.log.batch import Record, build_batch
from schemas.consumer_offsets import RecordType
from schemas.registry import REGISTRY
from schemas.share_group_state import STATE_BATCH, ShareStateRecordType

OFFSETS_TOPIC, SHARE_TOPIC = "__consumer_offsets", "__share_group_state"
PARTITION_COUNT = 8
COMMIT_COUNT = 1_000_000
SHARE_RECORD_COUNT = 200_000
COMMITS_PER_BATCH = 26
START_MS = 1_700_000_000_000


def write_logs(folder: Path) -> Path:
    """A log directory with both topics; made once."""
    for topic, make in ((OFFSETS_TOPIC, commits), (SHARE_TOPIC, share_updates)):
        for partition in range(PARTITION_COUNT):
            segment = folder / f"{topic}-{partition}" / f"{0:020d}.log"
            if segment.exists():
                continue
            segment.parent.mkdir(parents=True, exist_ok=True)
            unfinished = segment.with_suffix(".unfinished")
            with unfinished.open("wb") as out:
                for batch in make(partition):
                    out.write(batch)
            unfinished.rename(segment)
    return folder


def commits(partition: int) -> Iterator[bytes]:
    """Batches of plain commits of 40 groups with 50 partitions each."""
    key_message, value_message = REGISTRY[OFFSETS_TOPIC][RecordType.OFFSET_COMMIT]
    random = Random(partition)
    keys = [
        codec.encode_key(
            OFFSETS_TOPIC,
            RecordType.OFFSET_COMMIT,
            codec.make(
                key_message, group=f"orders-service-{partition}-{group}", topic=f"orders-{p // 10}", partition=p % 10
            ),
        )
        for group in range(40)
        for p in range(50)
    ]
    offsets = [0] * len(keys)
    log_offset = 0
    for tick in range(COMMIT_COUNT // PARTITION_COUNT // COMMITS_PER_BATCH):
        timestamp_ms = START_MS + 10 * tick
        records = []
        for _ in range(COMMITS_PER_BATCH):
            key = random.randrange(len(keys))
            offsets[key] += random.randrange(500)
            value = codec.make(
                value_message, offset=offsets[key], leader_epoch=3, metadata="", commit_timestamp=timestamp_ms
            )
            encoded = codec.encode_value(OFFSETS_TOPIC, RecordType.OFFSET_COMMIT, 4, value)
            records.append(Record(log_offset, timestamp_ms, keys[key], encoded, ()))
            log_offset += 1
        yield build_batch(records, base_sequence=0)


def share_updates(partition: int) -> Iterator[bytes]:
    """Batches of snapshots and updates of 20 share partitions with a moving window of deliveries."""
    random = Random(partition)
    topic_id = "AAAAAAAAAAAAAAAAAAAAAQ"
    snapshot, update = ShareStateRecordType.SHARE_SNAPSHOT, ShareStateRecordType.SHARE_UPDATE
    keys = [{"group_id": f"workers-{partition}", "topic_id": topic_id, "partition": p} for p in range(20)]
    starts = [0] * len(keys)
    for log_offset in range(SHARE_RECORD_COUNT // PARTITION_COUNT):
        number = log_offset % len(keys)
        timestamp_ms = START_MS + log_offset
        record_type = snapshot if log_offset < len(keys) or log_offset % 500 < len(keys) else update
        batches = tuple(
            codec.make(
                STATE_BATCH,
                first_offset=first,
                last_offset=first + 4,
                delivery_state=random.choice((0, 2, 2, 2)),
                delivery_count=1,
            )
            for first in range(starts[number], starts[number] + 50, 10)
        )
        fields = {"start_offset": starts[number], "state_batches": batches, "snapshot_epoch": 0, "leader_epoch": 0}
        if record_type == snapshot:
            fields |= {"create_timestamp": timestamp_ms, "write_timestamp": timestamp_ms}
        starts[number] += random.randrange(20)
        key_message, value_message = REGISTRY[SHARE_TOPIC][record_type]
        key = codec.encode_key(SHARE_TOPIC, record_type, codec.make(key_message, **keys[number]))
        value = codec.encode_value(SHARE_TOPIC, record_type, 0, codec.make(value_message, **fields))
        yield build_batch([Record(log_offset, timestamp_ms, key, value, ())], base_sequence=0)
