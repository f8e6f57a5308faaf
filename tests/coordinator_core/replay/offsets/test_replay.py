"""Pure replay of offset commits: what no trace of Kafka's has (`test_traces`)."""

from coordinator_core.bytes.codec import make
from coordinator_core.replay.offsets.replay import replay_end_transaction_marker, replay_offset_commit
from coordinator_core.replay.offsets.state import OffsetKey, OffsetsState
from schemas.consumer_offsets.offsets import OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE

KEY = OffsetKey("g", "t", 0)


def test_replay_leaves_the_state_it_was_given() -> None:
    """States are values: neither a marker nor a tombstone changes the one before."""
    key, value = make(OFFSET_COMMIT_KEY, **KEY._asdict()), make(OFFSET_COMMIT_VALUE, offset=1)
    before = replay_offset_commit(OffsetsState(), key, value, offset=0, producer_id=7)
    replay_end_transaction_marker(before, 7, committed=True)
    replay_offset_commit(before, key, None, offset=5, producer_id=-1)
    assert before == replay_offset_commit(OffsetsState(), key, value, offset=0, producer_id=7)
    assert list(before.pending) == [7]
