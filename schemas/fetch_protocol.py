"""Kafka's Fetch request, to which the leader of a log partition responds with raw record batches.

Source: FetchRequest.json and FetchResponse.json of Kafka 4.3.1 (kafka-clients, common/message). A test compares every
version with kafka-python, which has these definitions too, but copies the data several times: for a large log that is
most of the work.
"""

from typing import Final

from schemas.wire import Array, Field, Int8, Int16, Int32, Int64, Records, String, Struct, Uuid, api

FETCH_PARTITION: Final = Struct(
    "FetchPartition",
    (
        Field("partition", Int32, about="Partition of the topic."),
        Field("current_leader_epoch", Int32, versions="9+", default=-1, ignorable=True, about="Who we think leads it."),
        Field("fetch_offset", Int64, about="Offset to begin at."),
        Field("last_fetched_epoch", Int32, versions="12+", default=-1, about="Of followers and of truncating readers."),
        Field("log_start_offset", Int64, versions="5+", default=-1, ignorable=True, about="Of followers."),
        Field("partition_max_bytes", Int32, about="Most bytes of this partition; a first larger batch still comes."),
        Field("replica_directory_id", Uuid, versions="17+", tag=0, ignorable=True, about="Of followers."),
        Field("high_watermark", Int64, versions="18+", tag=1, default=2**63 - 1, ignorable=True, about="Of followers."),
    ),
)
FETCH_TOPIC: Final = Struct(
    "FetchTopic",
    (
        Field("topic", String, versions="0-12", ignorable=True, about="Name of the topic."),
        Field("topic_id", Uuid, versions="13+", ignorable=True, about="Its id, in place of the name."),
        Field(
            "partitions", Array(FETCH_PARTITION), about="Partitions to fetch, in the order in which they are served."
        ),
    ),
)
FORGOTTEN_TOPIC: Final = Struct(
    "ForgottenTopic",
    (
        Field("topic", String, versions="7-12", ignorable=True, about="Name of the topic."),
        Field("topic_id", Uuid, versions="13+", ignorable=True, about="Its id."),
        Field("partitions", Array(Int32), versions="7+", about="Partitions which leave the session."),
    ),
)
REPLICA_STATE: Final = Struct(
    "ReplicaState",
    (
        Field("replica_id", Int32, versions="15+", default=-1, about="Of followers."),
        Field("replica_epoch", Int64, versions="15+", default=-1, about="Of followers."),
    ),
)

EPOCH_END_OFFSET: Final = Struct(
    "EpochEndOffset",
    (
        Field("epoch", Int32, versions="12+", default=-1, about="Largest epoch."),
        Field("end_offset", Int64, versions="12+", default=-1, about="Where it ends."),
    ),
)
LEADER_ID_AND_EPOCH: Final = Struct(
    "LeaderIdAndEpoch",
    (
        Field("leader_id", Int32, versions="12+", default=-1, about="Broker, -1 for unknown."),
        Field("leader_epoch", Int32, versions="12+", default=-1, about="Its epoch."),
    ),
)
SNAPSHOT_ID: Final = Struct(
    "SnapshotId",
    (
        Field("end_offset", Int64, default=-1, about="End offset of a snapshot of the metadata log."),
        Field("epoch", Int32, default=-1, about="Its epoch."),
    ),
)
ABORTED_TRANSACTION: Final = Struct(
    "AbortedTransaction",
    (
        Field("producer_id", Int64, versions="4+", about="Producer."),
        Field("first_offset", Int64, versions="4+", about="Where its transaction begins."),
    ),
)
PARTITION_DATA: Final = Struct(
    "PartitionData",
    (
        Field("partition_index", Int32, about="Partition of the topic."),
        Field("error_code", Int16, about="Kafka's error, 0 for none."),
        Field("high_watermark", Int64, about="Next offset that is not on all replicas in sync; -1 with an error."),
        Field("last_stable_offset", Int64, versions="4+", default=-1, ignorable=True, about="First open transaction."),
        Field("log_start_offset", Int64, versions="5+", default=-1, ignorable=True, about="First offset there is."),
        Field("diverging_epoch", EPOCH_END_OFFSET, versions="12+", tag=0, about="For last_fetched_epoch."),
        Field("current_leader", LEADER_ID_AND_EPOCH, versions="12+", tag=1, about="With some errors."),
        Field("snapshot_id", SNAPSHOT_ID, versions="12+", tag=2, about="Of the metadata log."),
        Field(
            "aborted_transactions",
            Array(ABORTED_TRANSACTION),
            versions="4+",
            nullable="4+",
            ignorable=True,
            about="With isolation level 1.",
        ),
        Field("preferred_read_replica", Int32, versions="11+", default=-1, about="Who should be asked, for a rack."),
        Field("records", Records, nullable="0+", about="Batches as they are on disk; the last may be cut."),
    ),
)
FETCHABLE_TOPIC_RESPONSE: Final = Struct(
    "FetchableTopicResponse",
    (
        Field("topic", String, versions="0-12", ignorable=True, about="Name of the topic."),
        Field("topic_id", Uuid, versions="13+", ignorable=True, about="Its id, in place of the name."),
        Field("partitions", Array(PARTITION_DATA), about="By partition."),
    ),
)
NODE_ENDPOINT: Final = Struct(
    "NodeEndpoint",
    (
        Field("node_id", Int32, versions="16+", about="Broker."),
        Field("host", String, versions="16+", about="Its host."),
        Field("port", Int32, versions="16+", about="Its port."),
        Field("rack", String, versions="16+", nullable="16+", default=None, about="Its rack, null for none."),
    ),
)
FETCH: Final = api(
    "Fetch",
    1,
    "4-18",
    (
        Field(
            "cluster_id",
            String,
            versions="12+",
            nullable="12+",
            tag=0,
            default=None,
            ignorable=True,
            about="Of controllers.",
        ),
        Field("replica_id", Int32, versions="0-14", default=-1, about="-1: not a follower."),
        Field("replica_state", REPLICA_STATE, versions="15+", tag=1, about="Of followers."),
        Field("max_wait_ms", Int32, about="How long the broker may wait for min_bytes."),
        Field("min_bytes", Int32, about="Least bytes of an answer, unless the wait is over."),
        Field("max_bytes", Int32, versions="3+", default=2**31 - 1, ignorable=True, about="Most bytes of an answer."),
        Field(
            "isolation_level",
            Int8,
            versions="4+",
            ignorable=True,
            about="0: up to the high watermark; 1: up to the last stable offset.",
        ),
        Field("session_id", Int32, versions="7+", ignorable=True, about="0: no session."),
        Field("session_epoch", Int32, versions="7+", default=-1, ignorable=True, about="-1: no session."),
        Field("topics", Array(FETCH_TOPIC), about="What to fetch."),
        Field("forgotten_topics_data", Array(FORGOTTEN_TOPIC), versions="7+", about="Of sessions."),
        Field("rack_id", String, versions="11+", ignorable=True, about="client.rack: a replica near to it may serve."),
    ),
    (
        Field("throttle_time_ms", Int32, versions="1+", ignorable=True, about="How long to wait, for a quota."),
        Field("error_code", Int16, versions="7+", ignorable=True, about="Of the session."),
        Field("session_id", Int32, versions="7+", about="0: no session."),
        Field("responses", Array(FETCHABLE_TOPIC_RESPONSE), about="By topic."),
        Field(
            "node_endpoints",
            Array(NODE_ENDPOINT),
            versions="16+",
            tag=0,
            ignorable=True,
            about="Where leaders are which moved.",
        ),
    ),
    flexible="12+",
)
