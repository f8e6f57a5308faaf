"""classic_group: what GroupMetadataValue tells, and what the loader makes of it."""

from typing import Any

import pytest

from coordinator_core.replay.anomalies import CLASSIC_MEMBER_REPEATED
from coordinator_core.replay.classic.state import ClassicGroup, ClassicGroupState
from schemas.consumer_offsets import RecordType
from tests.coordinator_core.group_records import folded, record


def loaded(**fields: Any) -> tuple[ClassicGroup, list[str]]:
    shard, codes = folded(record(RecordType.GROUP_METADATA, {"group": "g"}, fields))
    group = shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    return group, codes


@pytest.mark.parametrize(("protocol_type", "expected"), [("", None), ("connect", "connect")])
def test_empty_protocol_type_is_none(protocol_type: str, expected: str | None) -> None:
    """A group without members and protocol type is simple."""
    group, _ = loaded(protocol_type=protocol_type)
    assert (group.protocol_type, group.is_simple) == (expected, expected is None)


def test_state_is_empty_or_stable() -> None:
    """The log tells no more of the state than whether there are members."""
    assert loaded(protocol_type="consumer")[0].state is ClassicGroupState.EMPTY
    assert loaded(protocol_type="consumer", members=[{"member_id": "A"}])[0].state is ClassicGroupState.STABLE


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
