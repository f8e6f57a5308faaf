"""Left or expired, where the session time-out is a config of the group: known from the metadata log, or assumed."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from coordinator_core.inference.audit.groups import audit_group
from coordinator_core.inference.facts.configs import ConfigRow, Configs
from coordinator_core.inference.facts.settings import InferenceSettings
from tests.coordinator_core.inference.group_lives import (
    GROUP,
    REBALANCE_MS,
    classic,
    epoch,
    goes,
    joins,
    life_of,
    reconciled,
    target,
)

END = 300_000
GONE = (
    (0, [*joins("a"), *joins("b"), *epoch(2), *target(2, {"a": (0,), "b": (1,)})]),
    (1, [*reconciled("a", 2, (0,)), *reconciled("b", 2, (1,))]),
    (END, [*goes("b"), *epoch(3)]),
)
DEFAULTS = InferenceSettings()
SESSION = "consumer.session.timeout.ms"


def beats(end: int) -> list[tuple[int, int, int]]:
    """Commits of member b, every two seconds until it stopped."""
    return [(at, 1, at) for at in range(1_000, end, 2_000)]


def why(
    silent_ms: int, configs: Sequence[ConfigRow] = (), settings: InferenceSettings | None = None
) -> tuple[str, ...]:
    """Cause, method and confidence of b's departure, so long after its last commit."""
    life = life_of(GONE, beats(END - silent_ms + 1))
    row = audit_group(life, settings or InferenceSettings(), Configs(configs)).rebalances[-1]
    assert row.members_left == ("b",)
    return row.cause, row.method, row.confidence


def session(value: str, name: str = SESSION) -> ConfigRow:
    """The group's own session time-out, since long ago."""
    return ConfigRow("GROUP", GROUP, name, value, 0, 0, None)


EXPIRED = ("MEMBER_EXPIRED", "SILENT_FOR_CONFIGURED_SESSION", "LIKELY")
LAST_SEEN = ("MEMBER_LEFT", "HEARD_WITHIN_CONFIGURED_SESSION", "GUESS")
USUAL = ("MEMBER_EXPIRED", "SILENT_FOR_USUAL_SESSION", "LIKELY")
UNKNOWN_REASON = ("UNKNOWN", "LEFT_OR_EXPIRED", "GUESS")


@pytest.mark.parametrize(
    ("silent_ms", "configs", "expected"),
    [
        # half of the shortest session that brokers allow
        (1_000, [], ("MEMBER_LEFT", "JUST_HEARD", "LIKELY")),
        (3_000, [], UNKNOWN_REASON),
        # the heartbeat before its last one is a third of a session earlier
        (29_000, [session("46500")], LAST_SEEN),
        (31_000, [session("46500")], EXPIRED),
        (45_000, [], USUAL),
        (45_000, [session("45000")], EXPIRED),
        # the brokers' own session may be shorter than the setting
        (20_000, [], UNKNOWN_REASON),
        (120_000, [], UNKNOWN_REASON),
        (120_000, [session("120000")], EXPIRED),
        (45_000, [session("120000")], LAST_SEEN),
        (45_000, [session("120000", "share.session.timeout.ms")], USUAL),
        (120_000, [ConfigRow("BROKER", "", f"group.{SESSION}", "120000", 0, 0, None)], EXPIRED),
        (120_000, [session("45000")], UNKNOWN_REASON),
    ],
)
def test_the_session_time_out_of_the_group_decides(
    silent_ms: int, configs: list[ConfigRow], expected: tuple[str, str, str]
) -> None:
    """What the metadata log tells goes before the setting, and the method says which it was."""
    assert why(silent_ms, configs) == expected


def test_the_setting_holds_where_the_log_tells_nothing() -> None:
    """Other brokers' files, another setting."""
    assert why(60_000, settings=InferenceSettings(modern_session_timeout_ms=60_000)) == USUAL


def test_a_classic_member_without_a_session_of_its_own() -> None:
    """Brokers take no such one, yet a log may have it: no config is about classic groups, its last sign of life is."""
    both, alone = ({"a": (0,), "b": (1,)}, {"a": (0,)})
    life = life_of([(0, classic(1, both, session_ms=0)), (END, classic(2, alone, session_ms=0))], beats(END))
    row = audit_group(life, InferenceSettings(), Configs([session("120000")])).rebalances[-1]
    assert (row.members_left, row.cause, row.method) == (("b",), "MEMBER_LEFT", "JUST_HEARD")


@pytest.mark.parametrize(
    ("silent_ms", "is_transactional", "expected"),
    [
        (43_000, False, ("MEMBER_LEFT", "HEARD_WITHIN_SESSION", "LIKELY")),
        (43_000, True, ("MEMBER_EXPIRED", "SILENT_FOR_SESSION", "LIKELY")),
        (41_000, True, ("MEMBER_LEFT", "HEARD_WITHIN_SESSION", "LIKELY")),
    ],
)
def test_a_commit_in_a_transaction_begins_no_session(
    silent_ms: int, is_transactional: bool, expected: tuple[str, str, str]
) -> None:
    """A plain commit to a classic group does; else the heartbeat before it did, which may be some seconds older."""
    both, others = ({"a": (0,), "b": (1,)}, {"a": (0,), "c": (1,)})
    operations = [(0, classic(1, both, session_ms=45_000)), (END, classic(2, others, session_ms=45_000))]
    life = life_of(operations, beats(END - silent_ms + 1))
    commits = replace(life.commits, is_transactional=np.full(len(life.commits), is_transactional))
    row = audit_group(life._replace(commits=commits), InferenceSettings()).rebalances[-1]
    assert row.members_left == ("b",)
    place = row.causes.index(expected[0])
    assert (row.causes[place], row.cause_methods[place], row.cause_confidences[place]) == expected


@pytest.mark.parametrize(
    ("session_ms", "poll_ms", "confidence"),
    [
        pytest.param(45_000, REBALANCE_MS, "LIKELY", id="only an expiry explains it"),
        pytest.param(45_000, 45_000, "GUESS", id="as long as the poll interval"),
        pytest.param(6_000, REBALANCE_MS, "GUESS", id="no longer than a leave may take to show"),
    ],
)
def test_silence_that_a_leave_explains_as_well(session_ms: int, poll_ms: int, confidence: str) -> None:
    """A member whose client leaves for it when it stops polling, or that left between two heartbeats of the others, is
    silent, too: that it expired is a guess then."""
    both, others = ({"a": (0,), "b": (1,)}, {"a": (0,)})
    first, second = (
        classic(generation, owned, session_ms=session_ms, rebalance_ms=poll_ms)
        for generation, owned in enumerate((both, others), 1)
    )
    life = life_of([(0, first), (END, second)], beats(END - session_ms - 999))
    row = audit_group(life, DEFAULTS).rebalances[-1]
    assert (row.causes, row.method, row.confidence) == (("MEMBER_EXPIRED",), "SILENT_FOR_SESSION", confidence)


def test_silence_shorter_than_a_session_is_no_expiry() -> None:
    """A member that was silent for its rebalance timeout may have been dropped as it did not join again; no session of
    one leader's clock ends sooner than it lasts."""
    both, others = ({"a": (0,), "b": (1,)}, {"a": (0,)})
    first, second = (
        classic(generation, owned, session_ms=45_000, rebalance_ms=30_000)
        for generation, owned in enumerate((both, others), 1)
    )
    row = audit_group(life_of([(0, first), (END, second)], beats(END - 30_999)), DEFAULTS).rebalances[-1]
    assert (row.cause, row.method) == ("UNKNOWN", "LEFT_OR_EXPIRED")


def test_a_member_id_that_came_again() -> None:
    """That it went for a while, as static members do, was of its first stay."""
    reported = (
        *GONE[:2],
        (60_000, reconciled("b", -2, ())),
        (90_000, [*goes("b"), *epoch(3), *target(3, {"a": (0, 1)})]),
        (91_000, reconciled("a", 3, (0, 1))),
        (END - 2_000, [*joins("b"), *epoch(4)]),
        (END, [*goes("b"), *epoch(5)]),
    )
    first, _, last = audit_group(life_of(reported), InferenceSettings()).rebalances[-3:]
    assert (first.members_left, first.method) == (("b",), "STATIC_MEMBER_AWAY")
    assert (last.members_left, last.method) == (("b",), "JUST_HEARD")


@pytest.mark.parametrize(
    ("after_ms", "state", "expected"),
    [
        (20_000, 0, ("MEMBER_EXPIRED", "EPOCH_NOT_TAKEN", "GUESS")),
        # a heartbeat may be due
        (4_000, 0, ("UNKNOWN", "LEFT_OR_EXPIRED", "GUESS")),
        # it is asked to give partitions up first
        (20_000, 1, ("UNKNOWN", "LEFT_OR_EXPIRED", "GUESS")),
    ],
)
def test_a_member_that_takes_no_new_epoch(after_ms: int, state: int, expected: tuple[str, str, str]) -> None:
    """Its next heartbeat would have: it sent none for a third of a session, so it did not leave."""
    reported = (
        GONE[0],
        (1, [*reconciled("a", 2, (0,)), *reconciled("b", 2, (1,), revoking=(2,) if state else (), state=state)]),
        (END - after_ms, [*joins("c"), *epoch(3), *target(3, {"a": (0,), "b": (1,), "c": ()})]),
        (END - after_ms + 1, [*reconciled("a", 3, (0,)), *reconciled("c", 3, ())]),
        (END, [*goes("b"), *epoch(4)]),
    )
    life = life_of(reported)
    members = tuple(row._replace(uses_classic_protocol=False) for row in life.members)
    row = audit_group(life._replace(members=members), InferenceSettings()).rebalances[-1]
    assert row.members_left == ("b",)
    assert (row.cause, row.method, row.confidence) == expected
