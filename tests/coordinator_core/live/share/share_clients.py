"""Members of one share group, for tests: heartbeats with few words, a clock and a cluster which the test moves."""

from collections.abc import Mapping
from typing import Any

from coordinator_core.live.coordinator.image import MetadataImage, Topic, image_of
from coordinator_core.live.coordinator.operation import Outcome
from coordinator_core.live.share.messages import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareStatePartitions,
)
from coordinator_core.replay.share.state import ShareGroup, ShareGroupStatePartitions
from schemas.consumer_offsets import RecordType
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import GROUP, Clients

FOO, BAR, BAZ = "FFFFFFFFFFFFFFFFFFFFFA", "BBBBBBBBBBBBBBBBBBBBBA", "ZZZZZZZZZZZZZZZZZZZZZA"
TOPICS = {"foo": Topic("foo", FOO, 3), "bar": Topic("bar", BAR, 2), "baz": Topic("baz", BAZ, 1)}


class ShareClients(Clients):
    """Clients of one coordinator, and topics foo (3 partitions), bar (2), baz (1). Targets are computed at once."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**{"group_share_assignment_interval_ms": 0, **config})
        self.coordinator.image = image_of(TOPICS.values())

    @property
    def share_group(self) -> ShareGroup:
        """The group of these tests."""
        group = self.coordinator.group(GROUP)
        assert isinstance(group, ShareGroup)
        return group

    @property
    def state_partitions(self) -> ShareGroupStatePartitions:
        """The state of its share partitions."""
        return self.coordinator.shard.groups.share_partitions[GROUP]

    def try_heartbeat(self, member_id: str, epoch: int, *topics: str, rack_id: str | None = None) -> Outcome:
        """ShareGroupHeartbeat; without topics the subscription is as before."""
        self.now_ms += 1
        request = ShareGroupHeartbeatRequest(GROUP, member_id, epoch, rack_id, topics or None)
        return self.ask("share_group_heartbeat", request)

    def share_heartbeat(self, member_id: str, *topics: str) -> ShareGroupHeartbeatResponse:
        """A heartbeat at the member's epoch."""
        epoch = self.share_group.members[member_id].member_epoch
        return answer_of(self.try_heartbeat(member_id, epoch, *topics))

    def join_share(self, member_id: str, *topics: str) -> ShareGroupHeartbeatResponse:
        """Join; the partitions which this finds new are initialised right after."""
        response = answer_of(self.try_heartbeat(member_id, 0, *topics))
        if response.initialize_share_state is not None:
            self.initialized(response.initialize_share_state.partitions)
        return response

    def initialized(self, partitions: Mapping[str, tuple[int, ...]]) -> Outcome:
        """The share coordinator has initialised these."""
        return self.ask("initialize_share_group_state", ShareStatePartitions(GROUP, partitions))

    def settle(self) -> None:
        """Heartbeats of all members until none of them writes anything."""
        for _ in range(10):
            written_count = len(self.records)
            for member_id in sorted(self.share_group.members):
                response = self.share_heartbeat(member_id)
                if response.initialize_share_state is not None:
                    self.initialized(response.initialize_share_state.partitions)
            if len(self.records) == written_count:
                return
        raise AssertionError("the group does not settle")

    def take_image(self, image: MetadataImage, *changed: str) -> None:
        """The cluster's metadata change."""
        self.coordinator.update_metadata(image, changed, now_ms=self.now_ms)

    def written(self) -> list[int]:
        """Types of the records since the last call."""
        types = [int(entry.record.record_type) for entry in self.records]
        self.records.clear()
        return types


def answer_of(outcome: Outcome) -> ShareGroupHeartbeatResponse:
    """The answer to a heartbeat which is not refused."""
    assert outcome.error is None, outcome.error
    assert isinstance(outcome.response, ShareGroupHeartbeatResponse)
    return outcome.response


def refusal_of(outcome: Outcome) -> tuple[ErrorCode, str]:
    """Code and text of a refusal."""
    assert outcome.error is not None
    return outcome.error.code, outcome.error.message


def partitions_of(response: ShareGroupHeartbeatResponse) -> dict[str, tuple[int, ...]] | None:
    """Topic id -> partitions of an answer, or None where the member gets none."""
    if response.assignment is None:
        return None
    return {topic.topic_id: topic.partitions for topic in response.assignment.topic_partitions}


STATE_RECORD = int(RecordType.SHARE_GROUP_STATE_PARTITION_METADATA)
