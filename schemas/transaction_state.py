"""The topic `__transaction_state`: the state of each transactional id."""

from enum import IntEnum
from typing import Final

from schemas.wire import Array, Field, Int8, Int16, Int32, Int64, String, Struct, record_key, record_value

TOPIC: Final = "__transaction_state"


class TransactionStateRecordType(IntEnum):
    """The first two bytes of a key: the only record type of this topic."""

    TRANSACTION_LOG = 0


TRANSACTION_LOG: Final = TransactionStateRecordType.TRANSACTION_LOG


class TransactionStatus(IntEnum):
    """`transaction_status` on the wire (TransactionState)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


TRANSACTION_LOG_KEY: Final = record_key(
    TOPIC, TRANSACTION_LOG, Field("transactional_id", String, about="transactional.id of the producer.")
)

PARTITIONS_SCHEMA: Final = Struct(
    "PartitionsSchema",
    (
        Field("topic", String, about="A topic in the transaction."),
        Field("partition_ids", Array(Int32), about="Partitions of it."),
    ),
)

TRANSACTION_LOG_VALUE: Final = record_value(
    TOPIC,
    TRANSACTION_LOG,
    Field("producer_id", Int64, about="Current producer id."),
    Field(
        "previous_producer_id",
        Int64,
        versions="1+",
        tag=0,
        default=-1,
        about="Producer id before the last change, -1 none.",
    ),
    Field(
        "next_producer_id",
        Int64,
        versions="1+",
        tag=1,
        default=-1,
        about="Producer id after this transaction, when the epochs run out; -1 none.",
    ),
    Field("producer_epoch", Int16, about="Current epoch of the producer."),
    Field(
        "next_producer_epoch",
        Int16,
        versions="1+",
        tag=3,
        default=-1,
        about="Epoch that goes with the next producer id, -1 none.",
    ),
    Field("transaction_timeout_ms", Int32, about="transaction.timeout.ms of the producer."),
    Field("transaction_status", Int8, about="TransactionStatus."),
    Field(
        "transaction_partitions",
        Array(PARTITIONS_SCHEMA),
        nullable="0+",
        about="Partitions in the transaction; null or none when Empty.",
    ),
    Field("transaction_last_update_timestamp_ms", Int64, about="Epoch milliseconds."),
    Field("transaction_start_timestamp_ms", Int64, about="Epoch milliseconds, -1 none."),
    Field(
        "client_transaction_version",
        Int16,
        versions="1+",
        tag=2,
        about="transaction.version of the client; 2 raises the epoch with each transaction (KIP-890).",
    ),
    versions="0-1",
    flexible="1+",
)
