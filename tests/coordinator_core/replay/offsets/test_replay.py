"""Pure replay of offset commits: named cases, and Kafka's own state after the same records."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from immutables import Map

from coordinator_core.bytes.codec import Struct, decode_key, decode_value, make
from coordinator_core.replay.offsets.replay import (
    committed_offset_of,
    replay_end_transaction_marker,
    replay_offset_commit,
)
from coordinator_core.replay.offsets.state import CommittedOffset, OffsetKey, OffsetsState
from schemas.consumer_offsets import TOPIC
from schemas.consumer_offsets.offsets import LEGACY_OFFSET_COMMIT_VALUE, OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE

TRACES = Path(__file__).parents[3] / "data" / "traces"
LIVE_TRACES = ("group_classic", "group_consumer", "group_migration", "group_mixed", "group_offsets", "group_streams")
KEY, OTHER_KEY = OffsetKey("g", "t", 0), OffsetKey("g", "t", 1)

Json = dict[str, Any]


def key_struct(key: OffsetKey) -> Struct:
    return make(OFFSET_COMMIT_KEY, **key._asdict())


def replayed(*steps: tuple[Any, ...]) -> OffsetsState:
    """State after steps ("commit", key, offset or None, producer id) and ("marker", producer id, committed).

    A step's number is its log offset.
    """
    state = OffsetsState()
    for log_offset, step in enumerate(steps):
        if step[0] == "marker":
            state = replay_end_transaction_marker(state, step[1], step[2])
        else:
            value = None if step[2] is None else make(OFFSET_COMMIT_VALUE, offset=step[2])
            state = replay_offset_commit(state, key_struct(step[1]), value, offset=log_offset, producer_id=step[3])
    return state


def committed(state: OffsetsState) -> dict[OffsetKey, tuple[int, int]]:
    """Key -> (committed offset, record offset)."""
    return {key: (value.committed_offset, value.record_offset) for key, value in state.offsets.items()}


def pending(state: OffsetsState) -> dict[int, dict[OffsetKey, int]]:
    """Producer id -> key -> committed offset; checks the index by key on the way."""
    producers = {key: {p for p, owned in state.pending.items() if key in owned} for key in (KEY, OTHER_KEY)}
    assert dict(state.open_producers) == {key: ids for key, ids in producers.items() if ids}
    return {p: {key: v.committed_offset for key, v in owned.items()} for p, owned in state.pending.items()}


def test_commit_replaces_and_tombstone_removes() -> None:
    """A plain commit is in force at once; a tombstone of a key never seen is no error."""
    assert committed(replayed(("commit", KEY, 5, -1), ("commit", KEY, 3, -1))) == {KEY: (3, 1)}
    assert replayed(("commit", KEY, 5, -1), ("commit", KEY, None, -1)) == OffsetsState()
    assert replayed(("commit", KEY, None, -1)) == OffsetsState()


def test_commit_marker_applies_what_is_pending() -> None:
    """All keys of the producer, and only of this one."""
    steps = (("commit", KEY, 5, 7), ("commit", OTHER_KEY, 6, 7), ("commit", KEY, 8, 9))
    assert committed(replayed(*steps)) == {}
    state = replayed(*steps, ("marker", 7, True))
    assert committed(state) == {KEY: (5, 0), OTHER_KEY: (6, 1)}
    assert pending(state) == {9: {KEY: 8}}


def test_abort_marker_drops_what_is_pending() -> None:
    """What was in force before stays; a second marker finds nothing."""
    steps = (("commit", KEY, 1, -1), ("commit", KEY, 5, 7), ("marker", 7, False))
    assert committed(replayed(*steps)) == committed(replayed(*steps, ("marker", 7, True))) == {KEY: (1, 0)}
    assert pending(replayed(*steps)) == {}


def test_later_record_wins_over_the_marker() -> None:
    """A plain commit between record and marker stays in force; one before the record does not."""
    assert committed(replayed(("commit", KEY, 5, 7), ("commit", KEY, 3, -1), ("marker", 7, True))) == {KEY: (3, 1)}
    assert committed(replayed(("commit", KEY, 3, -1), ("commit", KEY, 5, 7), ("marker", 7, True))) == {KEY: (5, 1)}


def test_tombstone_forgets_pending_commits_of_all_producers() -> None:
    """Even one written in a third producer's transaction; other keys stay pending."""
    state = replayed(
        ("commit", KEY, 1, 7), ("commit", OTHER_KEY, 2, 7), ("commit", KEY, 3, 8), ("commit", KEY, None, 9)
    )
    assert pending(state) == {7: {OTHER_KEY: 2}}


def test_commit_inside_a_transaction_replaces_the_earlier_one() -> None:
    """One pending offset a producer and key."""
    state = replayed(("commit", KEY, 1, 7), ("commit", KEY, 2, 7))
    assert pending(state) == {7: {KEY: 2}}
    assert committed(replay_end_transaction_marker(state, 7, True)) == {KEY: (2, 1)}


def test_replay_leaves_the_state_it_was_given() -> None:
    """States are values."""
    before = replayed(("commit", KEY, 1, 7))
    replay_end_transaction_marker(before, 7, True)
    replay_offset_commit(before, key_struct(KEY), None, offset=5, producer_id=-1)
    assert before == OffsetsState(
        pending=Map({7: Map({KEY: CommittedOffset(0, 1, None, "", 0, None, None)})}),
        open_producers=Map({KEY: frozenset({7})}),
    )


def test_absent_fields_are_none() -> None:
    """-1 and the zero uuid mean absent; a legacy value has no such fields."""
    value = make(
        OFFSET_COMMIT_VALUE,
        offset=4,
        leader_epoch=0,
        metadata="m",
        commit_timestamp=9,
        expire_timestamp=0,
        topic_id="A" * 21 + "Q",
    )
    assert committed_offset_of(value, offset=3) == CommittedOffset(3, 4, 0, "m", 9, 0, "A" * 21 + "Q")
    plain = make(OFFSET_COMMIT_VALUE, offset=4, metadata="m", commit_timestamp=9)
    legacy = make(LEGACY_OFFSET_COMMIT_VALUE, offset=4, metadata="m", commit_timestamp=9)
    expected = CommittedOffset(3, 4, None, "m", 9, None, None)
    assert committed_offset_of(plain, offset=3) == committed_offset_of(legacy, offset=3) == expected


# --- Kafka's own state ---


def cases(trace: str) -> Iterator[Json]:
    """The trace, case by case."""
    with gzip.open(TRACES / f"{trace}.jsonl.gz", "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def replay_entry(state: OffsetsState, entry: Json) -> OffsetsState:
    """Apply one log entry of a trace, if it is an offset commit or a marker."""
    if "result" in entry:
        return replay_end_transaction_marker(state, entry["producerId"], entry["result"] == "COMMIT")
    if entry["type"] > 1:
        return state
    key = decode_key(TOPIC, bytes.fromhex(entry["key"]))
    value = None
    if entry["value"] is not None:
        value = decode_value(TOPIC, key.record_type, bytes.fromhex(entry["value"])).fields
    return replay_offset_commit(
        state, key.fields, value, offset=entry["offset"], producer_id=entry.get("producerId", -1)
    )


def dumped(state: OffsetsState) -> Json:
    """The state in the form of the traces, without what has no offsets."""
    groups: Json = {}
    for key, value in state.offsets.items():
        group = groups.setdefault(key.group, {})
        group.setdefault("offsets", {}).setdefault(key.topic, {})[str(key.partition)] = dumped_offset(value)
    for producer_id, owned in state.pending.items():
        for key, value in owned.items():
            producers = groups.setdefault(key.group, {}).setdefault("pendingTxnOffsets", {})
            topics = producers.setdefault(str(producer_id), {})
            topics.setdefault(key.topic, {})[str(key.partition)] = dumped_offset(value)
    return groups


def dumped_offset(value: CommittedOffset) -> Json:
    return {
        "offset": value.committed_offset,
        "leaderEpoch": -1 if value.leader_epoch is None else value.leader_epoch,
        "metadata": value.metadata,
        "commitTimestampMs": value.commit_timestamp_ms,
        "expireTimestampMs": -1 if value.expire_timestamp_ms is None else value.expire_timestamp_ms,
        "recordOffset": value.record_offset,
        "topicId": value.topic_id or "A" * 22,
    }


def offsets_only(groups: Json) -> Json:
    """Of Kafka's dump, what is about offsets."""
    kept = {
        name: {part: group[part] for part in ("offsets", "pendingTxnOffsets") if group.get(part)}
        for name, group in groups.items()
        if group is not None
    }
    return {name: parts for name, parts in kept.items() if parts}


@pytest.mark.parametrize("trace", LIVE_TRACES)
def test_replay_gives_the_state_of_a_fresh_shard(trace: str) -> None:
    """What live coordinators wrote, replayed: committed and pending offsets are Kafka's at every dump."""
    compared = 0
    for case in cases(trace):
        steps = case["steps"]
        if case["kafkaBugFromStep"] >= 0:
            steps = steps[: case["kafkaBugFromStep"]]
        entries = [record for step in steps for record in step["records"]]
        entries += [step["request"] for step in steps if step["op"] == "endTransactionMarker"]
        entries.sort(key=lambda entry: entry["offset"])
        for dump in case["replay"]:
            if dump["entries"] > len(entries) or "state" not in dump:
                continue
            state = OffsetsState()
            for entry in entries[: dump["entries"]]:
                state = replay_entry(state, entry)
            assert dumped(state) == offsets_only(dump["state"]), (case["id"], dump["entries"])
            compared += 1
    assert compared > 40


def test_replay_follows_synthetic_records() -> None:
    """Every version and random tombstones, markers and producers: after each entry the groups it changed
    agree."""
    compared = 0
    for case in cases("group_replay"):
        state = OffsetsState()
        for entry in case["entries"]:
            if entry.get("exception") is not None:
                continue
            state = replay_entry(state, entry)
            after = dumped(state)
            for group, dump in entry["stateChanges"].items():
                assert after.get(group, {}) == offsets_only({group: dump}).get(group, {}), case["id"]
                compared += 1
        if not case.get("endsInException"):
            assert dumped(state) == offsets_only(case["finalState"]), case["id"]
    assert compared > 1_000
