"""The clients of the live tests themselves: they do what they are there for."""

from collections import Counter
from typing import Final

from tests.live.conftest import Played

OUTCOMES: Final = frozenset({"committed", "aborted", "timed out", "open", "fenced"})


def test_groups_of_every_kind_rest(played: Played) -> None:
    """Each kind went through its script without a failure, and Admin knows the groups by their types."""
    assert {group.kind for group in played.groups.values()} == set(played.clients.kinds)
    assert not [group for group in played.groups.values() if group.failed]
    reported = played.broker.snapshot()
    types = Counter(facts["type"] for facts in reported["groups"].values())
    assert types.keys() == {"Classic", "Consumer", "Share", "Streams"}
    for group_id, group in played.groups.items():
        assert len(reported["groups"][group_id].get("members", ())) == group.member_count, group_id
    assert reported["leo_before"] == reported["leo_after"]


def test_transactions_come_to_every_end(played: Played) -> None:
    """The journal tells of transactions committed, aborted, timed out, fenced, and of one that is open."""
    outcomes = [line["outcome"] for line in played.clients.journal() if line["what"] == "transaction"]
    assert set(outcomes) == OUTCOMES
    assert outcomes.count("open") == outcomes.count("fenced") + 1
