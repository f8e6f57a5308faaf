"""A share group whose coordinator dies while partitions are initializing: the next one tries again, after a while."""

import pytest

from coordinator_core.bytes import codec
from coordinator_core.bytes.log.records import iter_records
from schemas import consumer_offsets
from simulator.simulation.internal_topic import REPLICATION_MS
from tests.simulator.simulation.simulations import Run, run_text

GROUP = """
[[group]]
name = "g"
protocol = "share"
topics = ["t"]
"""
STATE_PARTITIONS = 15
"""Record type of ShareGroupStatePartitionMetadata."""


def pictures(run: Run) -> list[tuple[int, bool, bool]]:
    """(time, has topics that are initializing, has initialized ones) of each record of it, in the order of time."""
    found = []
    for log, _ in run.simulation.logs():
        for batch in log.stored_batches() if log.topic == consumer_offsets.TOPIC else ():
            for record in iter_records(batch.data):
                key = codec.decode_key(consumer_offsets.TOPIC, record.key or b"")
                if key.record_type == STATE_PARTITIONS and record.value is not None:
                    value = codec.decode_value(consumer_offsets.TOPIC, STATE_PARTITIONS, record.value).fields
                    found.append((record.timestamp_ms, bool(value.initializing_topics), bool(value.initialized_topics)))
    return sorted(found)


def leader_of(run: Run) -> int:
    """The broker which coordinates the group."""
    leader = run.simulation.cluster.groups.leader(run.simulation.cluster.partition_of("g"))
    assert leader is not None
    return leader


@pytest.mark.parametrize(("setting", "interval_ms"), [("", 30_000), ("10s", 10_000)])
def test_initialization_is_tried_again_after_the_interval(setting: str, interval_ms: int) -> None:
    """group.share.initialize.retry.interval.ms, from when the next coordinator has loaded the group."""
    settings = f'[cluster.settings]\n"group.share.initialize.retry.interval.ms" = {interval_ms}\n' if setting else ""
    plain = run_text(settings + GROUP, minutes=2)
    (asked_ms, _, _), (_, is_initializing, is_initialized), *_ = pictures(plain)
    assert (is_initializing, is_initialized) == (False, True)
    fault = f"""
[[fault]]
kind = "broker_failover"
at = "{asked_ms + REPLICATION_MS + 1 - plain.simulation.scenario.start_ms}ms"
broker = {leader_of(plain)}
duration = "115s"
"""
    run = run_text(settings + GROUP + fault, minutes=2)
    (first_ms, *first), (second_ms, *second), (third_ms, *third), *_ = pictures(run)
    assert (first_ms, first, second, third) == (asked_ms, [True, False], [True, False], [False, True])
    assert interval_ms <= second_ms - first_ms < interval_ms + 15_000
    assert third_ms - second_ms < 1000
    assert min(line["ts_ms"] for line in run.lines("deliveries")) > second_ms
    with_all = run_text(settings + GROUP + fault, minutes=2, skips_heartbeats=False)
    assert with_all.log_bytes() == run.log_bytes()
