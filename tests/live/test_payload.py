"""Records that were given up, looked up on a real broker: what it has is what its segment files have."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_core.bytes.log.batch import build_batch, build_marker
from jobs.errors import SourceError
from jobs.queries.answers.dead_letters import CopyState, read_dead_letters
from jobs.queries.answers.payload import Presence, RecordRange, read_payloads
from jobs.settings import BrokerAddress
from jobs.sources.broker import Broker
from schemas.dead_letters import DeadLetterOrigin
from tests.jobs.queries.answers.test_payload import AT_MS, DEAD_LETTERS, ORDERS, dead_letter, record, segment
from tests.live.broker import BrokerTopic, LiveBroker
from tests.live.kafka_home import KafkaHome

TOPIC_IDS = {ORDERS: "AAAAAAAAAAAAAAAAAAAAAQ", DEAD_LETTERS: "AAAAAAAAAAAAAAAAAAAAAg"}
FAR = 60_000
"""An offset too far from the others for one fetch."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """orders-0 from offset 10, with a hole, a marker and a second segment far away; a dead-letter topic with a copy."""
    logs = tmp_path_factory.mktemp("source")
    marker = build_marker(
        offset=13, timestamp_ms=AT_MS, producer_id=1, producer_epoch=0, is_commit=True, coordinator_epoch=0
    )
    segment(logs, ORDERS, 0, 10, [build_batch([record(10), record(12, None, None)]), marker])
    segment(logs, ORDERS, 0, FAR, [build_batch([record(FAR), record(FAR + 1, value=b"")])])
    segment(logs, DEAD_LETTERS, 0, 0, [build_batch([dead_letter(0, 10, AT_MS)])])
    for topic, topic_id in TOPIC_IDS.items():
        # without it the broker takes the folder for a stray
        (logs / f"{topic}-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    return logs


@pytest.fixture(scope="module")
def cluster(source: Path, home: KafkaHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A connection to a broker that has these files for its own."""
    topics = [BrokerTopic(topic, topic_id, (0,)) for topic, topic_id in TOPIC_IDS.items()]
    folder = tmp_path_factory.mktemp("payload") / "broker"
    with (
        LiveBroker(home, folder, topics=topics, logs=source) as live,
        Broker.connect(BrokerAddress(live.address)) as broker,
    ):
        yield broker


def test_a_live_log_tells_what_its_segments_tell(source: Path, cluster: Broker) -> None:
    """Records, markers, holes, what retention took and what was never written, by offset, near and far."""
    ranges = [RecordRange(ORDERS, 0, 9, 15), RecordRange(ORDERS, 0, FAR - 1, FAR + 2), RecordRange("nowhere", 0, 1, 1)]
    live = read_payloads([], ranges, broker=cluster, with_values=True)
    assert live == read_payloads([str(source)], ranges, with_values=True)
    assert {one.presence for one in live} == set(Presence) - {Presence.UNREADABLE}


def test_dead_letters_are_found_on_a_live_topic(source: Path, cluster: Broker) -> None:
    """The copy is where the segment has it; a topic that nobody has is said."""
    live = read_dead_letters([], [DEAD_LETTERS], broker=cluster)
    assert live == read_dead_letters([str(source)], [DEAD_LETTERS])
    assert live.state_of(DeadLetterOrigin("workers", ORDERS, 0, 10), "REJECT_OR_GAP", AT_MS) is CopyState.FOUND
    with pytest.raises(SourceError):
        read_dead_letters([], ["no-such-topic"], broker=cluster)
