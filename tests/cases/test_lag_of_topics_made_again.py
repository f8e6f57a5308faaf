"""Samples of a topic's ends say nothing of another topic of the same name."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from coordinator_core.bytes import codec
from coordinator_core.bytes.log.batch import Record, build_batch
from jobs.delta.arrow_schemas import arrow_schema
from schemas.cluster_metadata import REMOVE_TOPIC_RECORD, TOPIC_RECORD
from schemas.cluster_metadata import TOPIC as METADATA_TOPIC
from schemas.tables.bronze import END_OFFSETS
from tests.cases.harness import CLUSTER_ID, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.coordinator_core.group_records import T1, T2


def metadata_log(*, is_made_again: bool) -> SmallLog:
    """Topic `in` is made, and perhaps removed and made again."""
    log = SmallLog(0, METADATA_TOPIC)
    made = [(NOON_MS, TOPIC_RECORD, codec.make(TOPIC_RECORD, topic_id=T1, name="in"))]
    if is_made_again:
        made += [
            (NOON_MS + 10_000, REMOVE_TOPIC_RECORD, codec.make(REMOVE_TOPIC_RECORD, topic_id=T1)),
            (NOON_MS + 11_000, TOPIC_RECORD, codec.make(TOPIC_RECORD, topic_id=T2, name="in")),
        ]
    for at_ms, message, fields in made:
        batch = build_batch([Record(log.next_offset, at_ms, None, codec.encode_metadata(message, fields, 0))])
        log.batches.append(batch)
        log.next_offset += 1
    return log


def sampled(ledger: Ledger, *samples: tuple[int, int]) -> None:
    """End offsets of partition 0 of topic `in`, as a live capture samples them: time and offset."""
    rows = [
        {
            "cluster_id": CLUSTER_ID,
            "topic": "in",
            "partition": 0,
            "sampled_at": datetime.fromtimestamp(at_ms / 1000, UTC),
            "log_start_offset": 0,
            "end_offset": end_offset,
        }
        for at_ms, end_offset in samples
    ]
    ledger.warehouse.ensure(END_OFFSETS)
    table = pa.Table.from_pylist(rows, schema=arrow_schema(END_OFFSETS))
    ledger.warehouse.write(END_OFFSETS, table, app_id="test", version=1)


@pytest.mark.parametrize("is_made_again", [False, True])
def test_equal_ends_of_two_topics_are_no_end_that_stayed(tmp_path: Path, is_made_again: bool) -> None:
    """Between two samples of 80 a commit of 70 is 10 behind, unless the topic was made again in between."""
    ledger, log = Ledger(tmp_path / "warehouse"), SmallLog()
    metadata_log(is_made_again=is_made_again).write(tmp_path / "logs")
    log.commit("g", 0, 70, NOON_MS + 5_000)
    sampled(ledger, (NOON_MS + 1_000, 80), (NOON_MS + 20_000, 80))
    ledger.night(log.write(tmp_path / "logs"))
    (row,) = ledger.rows("gold.lag_history")
    if is_made_again:
        assert (row["method"], row["lag"], row["lag_min"], row["lag_max"]) == ("LAST_SAMPLE", None, 10, None)
    else:
        assert (row["method"], row["confidence"], row["lag"]) == ("UNCHANGED_END", "CERTAIN", 10)
