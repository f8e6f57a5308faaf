"""All errors of the core.

There are two sides, as in a protocol: a `DecodeError` means that the bytes are wrong; any other `CoreError` means that
the caller is. Any bytes either decode or raise `DecodeError`; a decoder raises nothing else.
"""

import re
from typing import ClassVar, Self


class CoreError(Exception):
    """Base of every error raised by the core."""


class DecodeError(CoreError):
    """The bytes are wrong. `byte_position` counts from the start of the buffer that the decoder was given.

    Messages have positions, sizes and codes but never the bytes themselves: exception messages reach Spark's event log.
    """

    code: ClassVar[str] = "DECODE_ERROR"
    """The name of the class in capitals, as bronze.quarantine has it."""

    def __init_subclass__(cls) -> None:
        cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).upper()

    def __init__(self, message: str, *, byte_position: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.byte_position = byte_position


class BufferUnderflow(DecodeError):
    """The buffer ends inside a value."""


class LengthOutOfBounds(DecodeError):
    """A length, count or size that exceeds the remaining bytes, or is negative where that is not allowed."""


class VarintTooLong(DecodeError):
    """A variable-length integer of more than 5 (int32) or 10 (int64) bytes."""


class NullNotAllowed(DecodeError):
    """Null in a field that is not nullable in this version."""


class UnknownRecordType(DecodeError):
    """A record type that no declaration has. Kafka warns and skips it (UnknownRecordTypeException); so does replay."""


class UnknownValueVersion(DecodeError):
    """A value version that no declaration has. Kafka's loader fails (UnknownRecordVersionException); we quarantine."""


class InvalidBatch(DecodeError):
    """A batch header whose fields contradict each other."""


class CrcMismatch(DecodeError):
    """The CRC in the header is not the CRC of the bytes."""


class UnknownCodec(DecodeError):
    """A compression codec id outside 0..4."""


class DecompressionFailed(DecodeError):
    """The compressed section is not in the format of its codec."""


class DecompressedTooLarge(DecodeError):
    """The decompressed section exceeds the limit: a compression bomb, or a limit set too low."""


class InvalidRecord(DecodeError):
    """A record that does not use exactly its declared length, or has impossible fields."""


class StateUnreadable(CoreError):
    """Saved state that this version of the code did not write: rebuild it from the log."""


class ReplayFault(Exception):
    """A bug in the code itself, met at a record: its cause is an exception that is not in this module.

    It names the group and the place, so that the caller can leave that group out.
    """

    def __init__(self, message: str, *, group_id: str, log_offset: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.group_id = group_id
        self.log_offset = log_offset

    @classmethod
    def of(cls, error: Exception, group_id: str, log_offset: int | None = None) -> Self:
        """Wrap the exception that caused it."""
        place = "" if log_offset is None else f" at log offset {log_offset}"
        message = f"replay of group {group_id!r} failed{place}: {type(error).__name__}: {error}"
        fault = cls(message, group_id=group_id, log_offset=log_offset)
        fault.__cause__ = error
        return fault

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with the keyword arguments: it comes from Spark workers."""
        return _rebuild_fault, (type(self), self.message, self.group_id, self.log_offset)


def _rebuild_fault(kind: type[ReplayFault], message: str, group_id: str, log_offset: int | None) -> ReplayFault:
    return kind(message, group_id=group_id, log_offset=log_offset)


class EncodeError(CoreError):
    """The caller asked to encode a value that the wire format cannot represent."""


class UnprintedRecord(EncodeError):
    """A line of a tool does not contain its whole record. `group_id`: the record's group, where it is known."""

    def __init__(self, message: str, group_id: str | None = None) -> None:
        super().__init__(message)
        self.group_id = group_id


class LaterKafka(UnprintedRecord):
    """A record has a type, version or name that comes from a later release of Kafka than the known ones."""


class TruncatedBatch(DecodeError):
    """The segment ends inside a batch: a torn tail, or a truncated file."""


class InvalidCheckpoint(DecodeError):
    """A checkpoint file in a broker's log directory that is not in the format of CheckpointFile."""


class NotRedactable(DecodeError):
    """A compressed message set from before Kafka 0.11: each message inside has its own checksum."""


class ContradictoryRecord(CoreError):
    """A command wrote a record that contradicts the state: a bug in the command, not in its caller."""


class UnknownSetting(CoreError):
    """A property that no coordinator reads, or a value that the property cannot have."""


class IllegalTransition(CoreError):
    """The requested state may not follow the current one. Nothing is changed."""


class ContradictoryLog(CoreError):
    """A record of the log contradicts the state from the records before it: the coordinator cannot load."""


class NoSuchReplica(CoreError):
    """A broker that has no replica of the partition, or may not lead it now."""


class UnknownRequest(CoreError):
    """A response to a request that is not in flight."""


class ColumnarReplayError(CoreError):
    """The columnar replay was called wrongly, or its state contradicts itself."""


class IllegalClientState(CoreError):
    """A transition that the transition table does not have: a bug in the client's code."""


class LookupKeyError(CoreError):
    """A key that no coordinator topic can store."""


class PastDiffers(CoreError):
    """A statement about the settled part of a log is no longer true."""


class PastTooShort(CoreError):
    """The stored past of a group is not enough to judge its new records: the group must be judged from its
    beginning."""


class NoInternalTopic(CoreError):
    """A topic in which no coordinator keeps its state."""


class IllegalEvent(CoreError):
    """An event that is not possible in this state. Nothing is changed."""


class UnknownKafkaVersion(CoreError):
    """A text that names no release whose rules are known."""


class WhatIfError(CoreError):
    """The question cannot be answered; the message says why, and what to ask instead."""


class UnreadMetadataType(EncodeError):
    """A record of the metadata log of a type that this project does not read."""
