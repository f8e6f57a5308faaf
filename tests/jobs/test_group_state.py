"""What an audit keeps of groups comes back from its bytes, and only from these."""

import numpy as np
import pytest

from coordinator_core.errors import StateUnreadable
from coordinator_core.inference.departures import Departure
from coordinator_core.inference.group_past import Gone, GroupedCommits, HeardBuilder, MembersHeard
from coordinator_core.inference.groups import judge_group
from coordinator_core.inference.rows import ShareGroupDayRow
from coordinator_core.inference.settings import InferenceSettings
from jobs.group_state import SavedGroups
from tests.coordinator_core.inference.group_lives import GROUP, classic, life_of

LEFT = Departure("MEMBER_LEFT", "WITHIN_TIMEOUTS", "CERTAIN")
EXPIRED = Departure("MEMBER_EXPIRED", "STATIC_MEMBER", "GUESS")


def saved() -> SavedGroups:
    """Of a group of which two members went, for reasons of their own, and one committed on."""
    operations = [(0, classic(1, {"a": (0,), "b": (1,), "c": (2,)})), (60_000, classic(2, {"a": (0, 1, 2)}))]
    life = life_of(operations, [(at, 0, at) for at in range(1_000, 90_000, 7_000)])
    judged = judge_group(life, InferenceSettings())
    gone = {place: Gone(2, LEFT, {("c", 0): EXPIRED}) for place in judged.past.gone}
    assert len(gone) == 1
    heard = HeardBuilder()
    heard.add(judged.life, judged.gold.owners, judged.heard)
    day = ShareGroupDayRow("s", "SHARE", 0, 0, 0, 0, 1, 2, None, None)
    commits = GroupedCommits.of_groups([(GROUP, life.commits)]).kept()
    return SavedGroups({GROUP: judged.past._replace(gone=gone)}, {"s": [day]}, commits, heard.built(MembersHeard()))


def test_what_is_kept_comes_back() -> None:
    """Facts, why members went, days, commits, and when members committed last."""
    before = saved()
    after = SavedGroups.unpacked(before.packed())
    assert (after.pasts, after.days) == (before.pasts, before.days)
    assert after.commits.group_ids == before.commits.group_ids == (GROUP,)
    assert after.commits.commits.log_offset.tolist() == before.commits.commits.log_offset.tolist()
    assert after.commits.commits.is_transactional.dtype == np.bool_
    assert after.heard.by_group() == before.heard.by_group()
    ((member_id, _), times), *others = after.heard.by_group()[GROUP].items()
    assert (member_id, len(times), others) == ("a", 11, [])


@pytest.mark.parametrize("length", [0, 1, 100])
def test_other_bytes_are_refused(length: int) -> None:
    """Cut off anywhere, it is no state."""
    with pytest.raises(StateUnreadable):
        SavedGroups.unpacked(saved().packed()[:length])
