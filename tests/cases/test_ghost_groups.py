"""Groups of offsets only in logs of the coordinator before Kafka 4.0: they go with their last offset, or with the
transaction that would have given them one, unsaid."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes.codec import encode_key, encode_value, make
from coordinator_core.bytes.log.batch import Record, build_batch, build_marker
from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.history.log_checkpoint import pack_offset_state, unpack_offset_state
from coordinator_core.history.offsets_log import OffsetsLogReplay, OffsetsLogState
from coordinator_core.history.rows import EventRow
from jobs.queries.as_of.as_of import SilverAt
from jobs.queries.verify.verify_ledger import Ledger as VerifyLedger
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.registry import REGISTRY
from tests.cases.harness import Ledger
from tests.cases.small_logs import SmallLog

NOON_MS = 1_500_000_000_000
OLD, NEW = -1, 0
"""Base sequences that the two coordinators write."""


def commit(group: str, partition: int = 0, offset: int | None = 5, *, version: int = 3) -> tuple[bytes, bytes | None]:
    """Key and value of an offset commit; of its tombstone, where there is no offset."""
    key_message, value_message = REGISTRY[TOPIC][RecordType.OFFSET_COMMIT]
    key = encode_key(
        TOPIC, RecordType.OFFSET_COMMIT, make(key_message, group=group, topic="orders", partition=partition)
    )
    if offset is None:
        return key, None
    value = make(value_message, offset=offset, metadata="", commit_timestamp=NOON_MS)
    return key, encode_value(TOPIC, RecordType.OFFSET_COMMIT, version, value)


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
    batches: tuple[list[tuple[bytes, bytes | None]], ...],
    sequence: int,
    leader_epoch: int,
    is_there: bool,
) -> None:
    """By which coordinator wrote its tombstones; however the log is cut into nights."""
    data = tuple(log([commit("other")], *batches, sequence=sequence, leader_epoch=leader_epoch))
    nights = [_events_of("ghost", data[:cut], data[cut:]) for cut in range(len(data))]
    lives = [event.event_type for event in nights[0] if event.event_type in {"GROUP_CREATED", "GROUP_DELETED"}]
    assert (lives[-1] == "GROUP_CREATED") == is_there
    assert nights == [nights[0]] * len(data)


PRODUCER_ID = 7


def in_transaction(offset: int, *records: tuple[bytes, bytes | None], producer_id: int = PRODUCER_ID) -> bytes:
    """A batch of commits of a producer, which either coordinator writes so."""
    rows = [Record(offset + place, NOON_MS + 1_000 * offset, *record) for place, record in enumerate(records)]
    return build_batch(
        rows, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True, leader_epoch=0
    )


def marker(offset: int, *, is_commit: bool = False, producer_id: int = PRODUCER_ID, leader_epoch: int = 0) -> bytes:
    """The end of a producer's transaction."""
    return build_marker(
        offset=offset,
        timestamp_ms=NOON_MS + 1_000 * offset,
        producer_id=producer_id,
        producer_epoch=0,
        is_commit=is_commit,
        coordinator_epoch=0,
        leader_epoch=leader_epoch,
    )


def plain(offset: int, *records: tuple[bytes, bytes | None], sequence: int = OLD) -> bytes:
    """A batch without a producer."""
    rows = [Record(offset + place, NOON_MS + 1_000 * offset, *record) for place, record in enumerate(records)]
    return build_batch(rows, leader_epoch=0, base_sequence=sequence)


OTHER_ID = PRODUCER_ID + 1
OPEN = (plain(0, commit("other")), in_transaction(1, commit("ghost", 0), commit("ghost", 1)))
ABORTED = (*OPEN, marker(3))


@pytest.mark.parametrize(
    ("data", "is_there", "deleted_at"),
    [
        pytest.param(ABORTED, False, [3], id="aborted"),
        pytest.param(OPEN, True, [], id="open"),
        pytest.param((*OPEN, marker(3, is_commit=True)), True, [], id="committed"),
        pytest.param((plain(0, commit("other"), sequence=NEW), *ABORTED[1:]), True, [], id="the-coordinator-since-4.0"),
        pytest.param((*OPEN, plain(3, commit("other", 1), sequence=NEW), marker(4)), True, [], id="upgraded-before"),
        pytest.param((*ABORTED, plain(4, commit("other", 1), sequence=NEW)), False, [3], id="upgraded-after"),
        pytest.param(ABORTED[1:], False, [3], id="nothing-shows-who-wrote"),
        pytest.param(
            (in_transaction(1, commit("ghost", version=4)), marker(2)), True, [], id="a-value-shows-who-wrote"
        ),
        pytest.param((*OPEN, marker(3, leader_epoch=-1)), True, [], id="packed-from-a-dump"),
        pytest.param((*ABORTED, plain(4, commit("ghost", 2))), True, [3], id="made-again"),
        pytest.param(
            (*ABORTED, in_transaction(4, commit("ghost", 0)), marker(5, is_commit=True)),
            True,
            [3],
            id="made-again-by-a-transaction",
        ),
        pytest.param((*ABORTED, in_transaction(4, commit("ghost", 0)), marker(5)), False, [3, 5], id="aborted-twice"),
        pytest.param((plain(0, commit("ghost", 5)), *ABORTED[1:]), True, [], id="has-a-plain-offset"),
        pytest.param((plain(0, classic("ghost", 4)), *ABORTED[1:]), True, [], id="a-group-with-generations"),
        pytest.param(
            (*OPEN, in_transaction(3, commit("ghost", 0), producer_id=OTHER_ID), marker(4)),
            True,
            [],
            id="another-producer-is-still-open",
        ),
        pytest.param(
            (
                *OPEN,
                in_transaction(3, commit("ghost", 0), producer_id=OTHER_ID),
                marker(4),
                marker(5, producer_id=OTHER_ID),
            ),
            False,
            [5],
            id="two-producers-abort",
        ),
        pytest.param(
            (
                *OPEN,
                in_transaction(3, commit("ghost", 0), producer_id=OTHER_ID),
                marker(4),
                marker(5, producer_id=OTHER_ID, is_commit=True),
            ),
            True,
            [],
            id="one-aborts-and-one-commits",
        ),
        pytest.param(
            (*OPEN, in_transaction(3, commit("ghost", 0, 9), commit("ghost", 1, 9)), marker(5)),
            False,
            [5],
            id="overwritten-in-the-transaction",
        ),
        pytest.param(
            (*OPEN, plain(3, commit("ghost", 0, None), commit("ghost", 1, None)), marker(5, is_commit=True)),
            False,
            [4],
            id="deleted-while-open",
        ),
        pytest.param(
            (plain(0, commit("ghost", 5)), *OPEN[1:], plain(3, commit("ghost", 5, None)), marker(4)),
            False,
            [4],
            id="expired-while-open-and-aborted",
        ),
        pytest.param(
            (plain(0, commit("ghost", 5)), *OPEN[1:], plain(3, commit("ghost", 5, None)), marker(4, is_commit=True)),
            True,
            [],
            id="expired-while-open-and-committed",
        ),
        pytest.param(
            (plain(0, commit("ghost", 5)), *ABORTED[1:], plain(4, commit("ghost", 5, None))),
            False,
            [4],
            id="expired-behind-an-aborted-one",
        ),
    ],
)
def test_a_group_that_a_transaction_leaves_without_offsets_goes(
    data: tuple[bytes, ...], is_there: bool, deleted_at: list[int]
) -> None:
    """The old coordinator writes nothing of it, and drops it; however the log is cut into nights."""
    nights = [_events_of("ghost", data[:cut], data[cut:]) for cut in range(len(data))]
    events = nights[0]
    lives = [event.event_type for event in events if event.event_type in {"GROUP_CREATED", "GROUP_DELETED"}]
    assert lives == ["GROUP_CREATED", "GROUP_DELETED"] * len(deleted_at) + ["GROUP_CREATED"] * is_there
    deleted = [(event.log_offset, event.at) for event in events if event.event_type == "GROUP_DELETED"]
    assert deleted == [(offset, _time_of(data, offset)) for offset in deleted_at]
    assert nights == [events] * len(data)


def _events_of(group_id: str, *nights: tuple[bytes, ...]) -> list[EventRow]:
    """What becomes of a group, night by night, each of which goes on from the bytes that the one before left."""
    state, events = None, []
    for night in nights:
        replay = OffsetsLogReplay(state)
        if night:
            chunk = decode_chunk(np.frombuffer(b"".join(night), np.uint8), bytes_max=1 << 20)
            events += [event for event in replay.feed(chunk).groups.events if event.group_id == group_id]
        state = replay.export_state()
        state = OffsetsLogState(unpack_offset_state(pack_offset_state(state.columnar)), state.groups)
    return sorted(events, key=lambda event: (event.log_offset, event.event_index))


def _time_of(data: tuple[bytes, ...], offset: int) -> int:
    """Of a batch that has the offset: its first offset gives it."""
    first = max(base for base in (int.from_bytes(batch[:8], "big") for batch in data) if base <= offset)
    return NOON_MS + 1_000 * first


@pytest.mark.parametrize("cut", [2, 4])
def test_groups_that_go_at_one_marker_have_events_of_their_own(tmp_path: Path, cut: int) -> None:
    """Log offset and index of an event name one event, whoever else goes there; answers list neither group, where a
    night ends before the marker, too."""
    data = [
        plain(0, commit("other")),
        in_transaction(1, commit("ghost")),
        in_transaction(2, commit("spook")),
        marker(3),
    ]
    ledger = Ledger(tmp_path / "ledger")
    for number, some in enumerate((data[:cut], data), 1):
        ledger.night(written(tmp_path / f"logs-{number}", some), number=number)
    assert {group.group_id for group in SilverAt(ledger.tables).groups()} == {"other"}
    places = {
        row["group_id"]: (row["log_offset"], row["event_index"])
        for row in ledger.rows("silver.group_events")
        if row["event_type"] == "GROUP_DELETED"
    }
    assert places == {"ghost": (3, 2), "spook": (3, 1)}


def test_verify_knows_the_groups_that_a_broker_may_not_have_dropped_yet(tmp_path: Path) -> None:
    """Those that a marker left without offsets, not those that went with a tombstone or came back."""
    data = [
        plain(0, commit("gone")),
        *(in_transaction(1 + number, commit(group)) for number, group in enumerate(("ghost", "back", "committed"))),
        marker(4),
        plain(5, commit("back")),
        plain(6, commit("gone", 0, None)),
        in_transaction(7, commit("committed")),
        marker(8, is_commit=True),
    ]
    ledger = Ledger(tmp_path / "warehouse")
    ledger.night(written(tmp_path / "logs", data))
    silver = VerifyLedger(ledger.tables, {})
    assert silver.left_empty({"gone", "ghost", "back", "committed", "nobody"}) == {"ghost"}


Act = tuple[str, str, int, bool]
"""What happens, group, partition or producer, and whether a transaction commits."""
ACTS = st.tuples(
    st.sampled_from(("commit", "delete", "delete", "transact", "transact", "end", "end", "generation")),
    st.sampled_from("ab"),
    st.sampled_from((0, 1)),
    st.booleans(),
)


def groups_of_broker(acts: list[Act]) -> set[str]:
    """Who has offsets, or a transaction that may give it some, or a generation (GroupMetadata.scala)."""
    offsets: set[tuple[str, int]] = set()
    open_: dict[int, set[tuple[str, int]]] = {0: set(), 1: set()}
    kept: set[str] = set()
    for number, (act, group, place, is_commit) in enumerate(acts):
        if act == "commit":
            offsets.add((group, place))
        elif act == "delete":
            for found in (offsets, *open_.values()):
                found.discard((group, place))
        elif act == "transact":
            open_[number % 2].add((group, place))
        elif act == "end":
            offsets |= open_[place] if is_commit else set()
            open_[place].clear()
        else:
            kept.add(group)
    return kept | {group for found in (offsets, *open_.values()) for group, _ in found}


@given(
    acts=st.lists(ACTS, min_size=1, max_size=30), magics=st.lists(st.sampled_from((1, 2)), min_size=30), cut=st.data()
)
def test_groups_of_any_story_are_those_of_the_broker(acts: list[Act], magics: list[int], cut: st.DataObject) -> None:
    """Plain and transactional commits, tombstones and markers, in formats that an upgrade mixes; cut anywhere."""
    batches = []
    for offset, (act, group, place, is_commit) in enumerate(acts):
        if act == "transact":
            batches.append(in_transaction(offset, commit(group, place), producer_id=offset % 2))
        elif act == "end":
            batches.append(marker(offset, producer_id=place, is_commit=is_commit))
        else:
            log = SmallLog()
            log.next_offset = offset
            record = classic(group, 4) if act == "generation" else commit(group, place, None if act == "delete" else 5)
            log.put(*record, NOON_MS + 1_000 * offset, magic=magics[offset])
            batches += log.batches
    place = cut.draw(st.integers(0, len(batches)))
    there = set()
    for group_id in "ab":
        events = _events_of(group_id, tuple(batches))
        assert _events_of(group_id, tuple(batches[:place]), tuple(batches[place:])) == events
        lives = [event.event_type for event in events if event.event_type in {"GROUP_CREATED", "GROUP_DELETED"}]
        there |= {group_id} if lives[-1:] == ["GROUP_CREATED"] else set()
    assert there == groups_of_broker(acts)
