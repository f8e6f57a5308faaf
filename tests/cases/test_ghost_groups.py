"""Groups of offsets only in logs of the coordinator before Kafka 4.0: they go with their last offset, unsaid."""

from pathlib import Path

import pytest

from coordinator_core.codec import encode_key, encode_value, make
from coordinator_core.log.batch import Record, build_batch, build_marker
from jobs.queries.as_of import SilverAt
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.registry import REGISTRY
from tests.cases.harness import CLUSTER_ID, Ledger

NOON_MS = 1_500_000_000_000
OLD, NEW = -1, 0
"""Base sequences that the two coordinators write."""


def commit(group: str, partition: int = 0, offset: int | None = 5) -> tuple[bytes, bytes | None]:
    """Key and value of an offset commit; of its tombstone, where there is no offset."""
    key_message, value_message = REGISTRY[TOPIC][RecordType.OFFSET_COMMIT]
    key = encode_key(
        TOPIC, RecordType.OFFSET_COMMIT, make(key_message, group=group, topic="orders", partition=partition)
    )
    if offset is None:
        return key, None
    value = make(value_message, offset=offset, metadata="", commit_timestamp=NOON_MS)
    return key, encode_value(TOPIC, RecordType.OFFSET_COMMIT, 3, value)


def classic(group: str, generation: int) -> tuple[bytes, bytes]:
    """Key and value of an empty classic group."""
    key_message, value_message = REGISTRY[TOPIC][RecordType.GROUP_METADATA]
    key = encode_key(TOPIC, RecordType.GROUP_METADATA, make(key_message, group=group))
    value = make(value_message, protocol_type="consumer", generation=generation, protocol=None, leader=None, members=())
    return key, encode_value(TOPIC, RecordType.GROUP_METADATA, 3, value)


def log(*batches: list[tuple[bytes, bytes | None]], sequence: int = OLD, leader_epoch: int = 0) -> list[bytes]:
    """Batches of an operation each, a minute apart."""
    found, offset = [], 0
    for number, records in enumerate(batches):
        at_ms = NOON_MS + 60_000 * number
        rows = [Record(offset + place, at_ms, *record) for place, record in enumerate(records)]
        found.append(build_batch(rows, leader_epoch=leader_epoch, base_sequence=sequence))
        offset += len(records)
    return found


def written(root: Path, batches: list[bytes]) -> Path:
    """A folder of logs with one segment."""
    folder = root / f"{TOPIC}-0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.log").write_bytes(b"".join(batches))
    return root


GHOST = ([commit("ghost", 0), commit("ghost", 1)], [commit("ghost", 0, None)], [commit("ghost", 1, None)])


def groups_at_the_end(ledger: Ledger) -> set[str]:
    """What describe lists."""
    return {group.group_id for group in SilverAt(ledger.warehouse, CLUSTER_ID).groups()}


@pytest.mark.parametrize(
    ("batches", "sequence", "leader_epoch", "is_there"),
    [
        pytest.param(GHOST, OLD, 0, False, id="with-its-last-offset"),
        pytest.param(GHOST[:2], OLD, 0, True, id="one-offset-is-left"),
        pytest.param(GHOST, NEW, 0, True, id="the-coordinator-since-4.0-says-so-itself"),
        pytest.param(GHOST, OLD, -1, True, id="packed-from-a-dump"),
        pytest.param((*GHOST, [commit("ghost", 2)]), OLD, 0, True, id="made-again"),
        pytest.param((*GHOST, [commit("ghost", 2)], [commit("ghost", 2, None)]), OLD, 0, False, id="gone-twice"),
        pytest.param(([classic("ghost", 4)], *GHOST), OLD, 0, True, id="a-group-with-generations-has-a-tombstone"),
        pytest.param((GHOST[0], [*GHOST[1], *GHOST[2]]), OLD, 0, False, id="in-one-operation"),
    ],
)
def test_a_group_of_offsets_only_goes_with_its_last_one(
    tmp_path: Path,
    batches: tuple[list[tuple[bytes, bytes | None]], ...],
    sequence: int,
    leader_epoch: int,
    is_there: bool,
) -> None:
    """By which coordinator wrote its tombstones; however the log is cut into nights."""
    other = [commit("other")]
    data = log(other, *batches, sequence=sequence, leader_epoch=leader_epoch)
    whole = Ledger(tmp_path / "whole")
    whole.night(written(tmp_path / "logs", data))
    expected = {"other", "ghost"} if is_there else {"other"}
    assert groups_at_the_end(whole) == expected
    for cut in sorted({2, len(data) - 1}):
        nights = Ledger(tmp_path / f"cut-{cut}")
        nights.night(written(tmp_path / f"first-{cut}", data[:cut]))
        nights.night(written(tmp_path / f"second-{cut}", data), number=2)
        for name in ("silver.group_generations", "silver.group_events"):
            once, twice = (
                sorted(repr({k: v for k, v in row.items() if k != "is_settled"}) for row in ledger.rows(name))
                for ledger in (whole, nights)
            )
            assert once == twice, (name, cut)


PRODUCER_ID = 7


@pytest.mark.parametrize(("ends_before", "is_commit", "is_there"), [(False, True, True), (True, False, False)])
def test_a_group_of_an_open_transaction_stays(
    tmp_path: Path, ends_before: bool, is_commit: bool, is_there: bool
) -> None:
    """Its last plain offset goes while a transaction is open that committed another one: the old coordinator keeps it,
    and the marker gives it that offset. An aborted transaction of before keeps nothing."""
    data = log([commit("other")], [commit("ghost", 0)])
    data.append(
        build_batch(
            [Record(2, NOON_MS + 120_000, *commit("ghost", 1))],
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            is_transactional=True,
        )
    )
    end = [
        build_marker(
            offset=3 + (not ends_before),
            timestamp_ms=NOON_MS + 180_000,
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            is_commit=is_commit,
            coordinator_epoch=0,
        )
    ]
    gone = [build_batch([Record(3 + ends_before, NOON_MS + 180_000, *commit("ghost", 0, None))])]
    data += end + gone if ends_before else gone + end
    for cut in range(2, len(data) + 1):
        ledger = Ledger(tmp_path / f"cut-{cut}")
        ledger.night(written(tmp_path / f"first-{cut}", data[:cut]))
        ledger.night(written(tmp_path / f"second-{cut}", data), number=2)
        assert groups_at_the_end(ledger) == ({"other", "ghost"} if is_there else {"other"}), cut
        events = [row["event_type"] for row in ledger.rows("silver.group_events") if row["group_id"] == "ghost"]
        assert events.count("GROUP_DELETED") == (not is_there), cut
