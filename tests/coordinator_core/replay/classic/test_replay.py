"""classic_group: what GroupMetadataValue tells, and what the loader makes of it."""

from typing import Any

import pytest
from immutables import Map

from coordinator_core.bytes.client_protocols import Subscription, encode_subscription
from coordinator_core.live.state_dump import dump_shard
from coordinator_core.replay.anomalies import CLASSIC_MEMBER_REPEATED
from coordinator_core.replay.classic.state import ClassicGroup, ClassicGroupState
from coordinator_core.replay.dispatch import CoordinatorShard, GroupShard
from schemas.consumer_offsets import RecordType
from tests.coordinator_core.group_records import folded, record


def loaded(**fields: Any) -> tuple[ClassicGroup, list[str]]:
    shard, codes = folded(record(RecordType.GROUP_METADATA, {"group": "g"}, fields))
    group = shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    return group, codes


@pytest.mark.parametrize(("rebalance_timeout", "expected"), [(-1, 30), (0, 0), (60, 60)])
def test_rebalance_timeout_of_version_0_is_the_session_timeout(rebalance_timeout: int, expected: int) -> None:
    """Version 0 has no rebalance time-out and reads as -1."""
    member = {"member_id": "A", "session_timeout": 30, "rebalance_timeout": rebalance_timeout}
    group, _ = loaded(protocol_type="consumer", members=[member])
    assert (group.members["A"].rebalance_timeout_ms, group.members["A"].session_timeout_ms) == (expected, 30)


@pytest.mark.parametrize(("protocol_type", "expected"), [("", None), ("connect", "connect")])
def test_empty_protocol_type_is_none(protocol_type: str, expected: str | None) -> None:
    """A group without members and protocol type is simple."""
    group, _ = loaded(protocol_type=protocol_type)
    assert (group.protocol_type, group.is_simple) == (expected, expected is None)


def test_state_is_empty_or_stable() -> None:
    """The log tells no more of the state than whether there are members."""
    assert loaded(protocol_type="consumer")[0].state is ClassicGroupState.EMPTY
    assert loaded(protocol_type="consumer", members=[{"member_id": "A"}])[0].state is ClassicGroupState.STABLE


def test_value_is_a_complete_picture() -> None:
    """Who is not in the next value is gone."""
    first, second = (
        record(
            RecordType.GROUP_METADATA,
            {"group": "g"},
            {
                "generation": generation,
                "current_state_timestamp": 5,
                "members": [{"member_id": name} for name in names],
            },
        )
        for generation, names in ((1, "AB"), (2, "BC"))
    )
    group = folded(first, second)[0].groups["g"]
    assert isinstance(group, ClassicGroup)
    assert (group.generation_id, sorted(group.members), group.current_state_timestamp_ms) == (2, ["B", "C"], 5)


def test_first_member_leads_where_none_is_named() -> None:
    """ClassicGroup.add makes the first member the leader."""
    members = [{"member_id": "B"}, {"member_id": "A"}]
    assert loaded(leader=None, members=members)[0].leader == "B"
    assert loaded(leader="A", members=members)[0].leader == "A"
    assert loaded(leader=None)[0].leader is None


@pytest.mark.parametrize(
    ("second", "codes"),
    [
        ({"member_id": "A", "client_id": "new"}, [CLASSIC_MEMBER_REPEATED]),
        ({"member_id": "B", "group_instance_id": "i"}, [CLASSIC_MEMBER_REPEATED]),
        ({"member_id": "B", "group_instance_id": "j"}, []),
        ({"member_id": "B"}, []),
    ],
)
def test_repeated_member_is_an_anomaly(second: dict[str, Any], codes: list[str]) -> None:
    """One member id or instance id twice: the last one stays."""
    group, reported = loaded(members=[{"member_id": "A", "group_instance_id": "i"}, second])
    assert reported == codes
    assert group.members[second["member_id"]].client_id == second.get("client_id", "")


@pytest.mark.parametrize(
    ("protocol", "subscriptions", "expected"),
    [
        ("range", [Subscription(3, ("b", "a")), Subscription(0, ("c",))], ["a", "b", "c"]),
        ("range", [], []),
        (None, [Subscription(3, ("a",))], None),
        ("range", [Subscription(3, ("a",)), None], None),
    ],
)
def test_subscribed_topics(protocol: str | None, subscriptions: list[Any], expected: list[str] | None) -> None:
    """Known from all subscriptions together, or not at all."""
    members = [
        {"member_id": str(number), "subscription": b"\0" if value is None else encode_subscription(value)}
        for number, value in enumerate(subscriptions)
    ]
    group, _ = loaded(protocol_type="consumer", protocol=protocol, members=members)
    dump = dump_shard(CoordinatorShard(GroupShard(Map({"g": group})))).get("g")
    assert dump is not None
    assert dump["group"]["subscribedTopics"] == expected
