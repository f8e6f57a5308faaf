"""What an audit keeps of groups comes back from its bytes, and only from these."""

import numpy as np
import pytest

from coordinator_core.errors import StateUnreadable
from coordinator_core.inference.audit.group_past import CommitTimesBuilder, Gone, GroupedCommits, MemberCommitTimes
from coordinator_core.inference.audit.groups import judge_group
from coordinator_core.inference.facts.claims import Claim
from coordinator_core.inference.facts.rows import ShareGroupDayRow
from coordinator_core.inference.facts.settings import InferenceSettings
from jobs.gold.group_checkpoints import SavedGroups, packed_watermark, unpacked_watermark
from tests.coordinator_core.inference.group_lives import GROUP, TOPIC, classic, life_of

DAY_MS = 86_400_000
LEFT = Claim("MEMBER_LEFT", "WITHIN_TIMEOUTS", "CERTAIN")
EXPIRED = Claim("MEMBER_EXPIRED", "STATIC_MEMBER", "GUESS")


def saved() -> SavedGroups:
    """Of a group of which two members went, for reasons of their own, and one committed on."""
    operations = [(0, classic(1, {"a": (0,), "b": (1,), "c": (2,)})), (60_000, classic(2, {"a": (0, 1, 2)}))]
    operations += [(at, classic(at // DAY_MS + 2, {"a": (0, 1)})) for at in (DAY_MS, 2 * DAY_MS)]
    life = life_of(operations, [(at, 0, at) for at in range(1_000, 90_000, 7_000)])
    judged = judge_group(life, InferenceSettings())
    gone = {judged.life.generations[1].from_log_offset: Gone(2, LEFT, {("c", 0): EXPIRED})}
    assert judged.watermark is not None
    commit_times = CommitTimesBuilder()
    commit_times.add(judged.life, judged.gold.owners, judged.commit_times)
    day = ShareGroupDayRow("s", "SHARE", 0, 0, 0, 0, 1, 2, None, None)
    commits = GroupedCommits.of_groups([(GROUP, life.commits)]).kept({})
    return SavedGroups(
        {GROUP: judged.past._replace(gone=gone)},
        {"s": [day]},
        commits,
        commit_times.built(MemberCommitTimes()),
        {GROUP: packed_watermark(judged.watermark)},
    )


def test_what_is_kept_comes_back() -> None:
    """Facts, why members went, days, commits, and when members committed last."""
    before = saved()
    after = SavedGroups.unpacked(before.packed())
    assert (after.pasts, after.days, after.watermarks) == (before.pasts, before.days, before.watermarks)
    assert after.commits.group_ids == before.commits.group_ids == (GROUP,)
    assert after.commits.commits.log_offset.tolist() == before.commits.commits.log_offset.tolist()
    assert after.commits.commits.is_transactional.dtype == np.bool_
    assert after.commit_times.by_group() == before.commit_times.by_group()
    ((member_id, _), times), *others = after.commit_times.by_group()[GROUP].items()
    assert (member_id, len(times), others) == ("a", 11, [])


def test_a_settled_past_comes_back() -> None:
    """Its words are events again, its ownership is found by place; a packed one that is cut off anywhere is refused."""
    (packed,) = saved().watermarks.values()
    watermark = unpacked_watermark(packed)
    assert packed_watermark(watermark) == packed
    assert watermark.day == DAY_MS
    # the very last event is kept as well: that one went
    assert {(event.member_id, event.event_type) for event in watermark.words if event.member_id is not None} == {
        ("a", "MEMBER_JOINED"),
        ("c", "MEMBER_LEFT"),
    }
    assert watermark.owned.keys() == {(TOPIC, None, 0, 0, "a"), (TOPIC, None, 1, 10, "a")}
    assert watermark.lost.keys() == watermark.unplanned == {(TOPIC, 2)}
    for length in range(len(packed)):
        with pytest.raises(StateUnreadable):
            unpacked_watermark(packed[:length])


@pytest.mark.parametrize("length", [0, 1, 100])
def test_other_bytes_are_refused(length: int) -> None:
    """Cut off anywhere, it is no state."""
    with pytest.raises(StateUnreadable):
        SavedGroups.unpacked(saved().packed()[:length])
