"""Consumer groups, and offsets committed in transactions, as Kafka 4.4 has them and 4.3 does not."""

import pytest

from coordinator_core.bytes.kafka_versions import KafkaVersion
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.consumer.test_classic_members import mixed, refused

V43, V44 = KafkaVersion(4, 3), KafkaVersion(4, 4)


@pytest.mark.parametrize(
    ("version", "code"),
    [(V43, ErrorCode.UNKNOWN_SERVER_ERROR), (V44, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)],
    ids=["4.3", "4.4"],
)
def test_a_malformed_subscription_is_refused(version: KafkaVersion, code: ErrorCode) -> None:
    """JoinGroup to a consumer group, with bytes that are no subscription."""
    clients, _ = mixed(kafka_version=version)
    assert refused(clients.enter(metadata=b"\x00")).code == code
