"""What may be missing from the rows of a group."""

from typing import Any

import pytest

from coordinator_core.inference.facts.life import OPEN_MS_MAX
from coordinator_core.inference.facts.log_facts import LogFacts
from tests.coordinator_core.inference.commits.test_commit_anomalies import commit, life_of


@pytest.mark.parametrize(
    ("missing", "is_hole", "is_gap"),
    [
        ({}, False, False),
        ({"whole_to": 0}, False, False),
        ({"whole_to": -1}, True, False),
        ({"holes": (10,)}, False, False),
        ({"holes": (11,)}, True, False),
        ({"holes": (20,)}, True, False),
        ({"holes": (21,)}, False, False),
        ({"gaps": (20,)}, False, True),
        ({"unread_from": 20}, True, True),
        ({"unread_from": 21}, False, False),
        ({"unread_from": 10}, True, False),
        ({"holes": (20,), "are_gaps_known": False}, True, True),
    ],
)
def test_records_that_may_be_missing_between_two_places(missing: dict[str, Any], is_hole: bool, is_gap: bool) -> None:
    """After the first place and up to the second, 10 and 20."""
    log = LogFacts(**missing)
    assert (log.has_hole(10, 20), log.may_have_gap(10, 20)) == (is_hole, is_gap)


@pytest.mark.parametrize(
    ("is_transactional", "hole", "end_ms", "expected"),
    [
        (False, 5, 10**12, False),
        (True, 5, 10**12 - OPEN_MS_MAX, False),
        (True, 5, 10**12 - OPEN_MS_MAX + 1, True),
        (True, 30, 0, False),
        (False, 15, 0, True),
    ],
)
def test_a_commit_that_may_be_missing(is_transactional: bool, hole: int, end_ms: int, expected: bool) -> None:
    """A hole after it, or, where it took effect with its transaction, one in which another one may have begun."""
    one = commit(10, 7, at=10**12, is_transactional=is_transactional)
    assert life_of(one, log=LogFacts(holes=(hole,), hole_ends=(end_ms,))).may_lack_commit(0, 20) is expected
