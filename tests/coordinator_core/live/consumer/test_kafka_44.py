"""Consumer groups, and offsets committed in transactions, as Kafka 4.4 has them and 4.3 does not."""

import pytest
from immutables import Map

from coordinator_core.bytes.kafka_versions import KafkaVersion
from coordinator_core.replay.modern import without_former_instance_id
from schemas.consumer_offsets import RecordType
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.consumer.members import Members
from tests.coordinator_core.live.consumer.test_classic_members import mixed, refused

V43, V44 = KafkaVersion(4, 3), KafkaVersion(4, 4)


@pytest.mark.parametrize(("version", "makes_epoch"), [(V43, False), (V44, True)], ids=["4.3", "4.4"])
def test_another_preferred_assignor_makes_an_epoch(version: KafkaVersion, makes_epoch: bool) -> None:
    """Of the one member of a group."""
    members = Members(kafka_version=version)
    members.join("m", "a", server_assignor="uniform")
    before = members.group.group_epoch
    members.heartbeat("m", server_assignor="range")
    assert members.group.group_epoch - before == makes_epoch
    assert (RecordType.CONSUMER_GROUP_METADATA in members.kinds()) == makes_epoch


@pytest.mark.parametrize(
    ("version", "code"),
    [(V43, ErrorCode.UNKNOWN_SERVER_ERROR), (V44, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)],
    ids=["4.3", "4.4"],
)
def test_a_malformed_subscription_is_refused(version: KafkaVersion, code: ErrorCode) -> None:
    """JoinGroup to a consumer group, with bytes that are no subscription."""
    clients, _ = mixed(kafka_version=version)
    assert refused(clients.enter(metadata=b"\x00")).code == code


@pytest.mark.parametrize(("version", "keeps"), [(V43, {"i", "j"}), (V44, {"j"})], ids=["4.3", "4.4"])
def test_a_member_that_changes_its_instance_id_gives_up_the_one_before(version: KafkaVersion, keeps: set[str]) -> None:
    """As replay finds two descriptions of one member; one that says the same again changes nothing."""
    found: Map[str, str] = Map({"i": "m", "j": "m"})
    assert set(without_former_instance_id(found, "i", "j", version)) == keeps
    assert without_former_instance_id(found, "i", "i", version) is found
