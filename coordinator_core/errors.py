"""The whole error tree on one page.

Two sides, as in a protocol: `DecodeError` says that the bytes are wrong, all else under `CoreError` that the
caller is. Any bytes either decode or raise `DecodeError`; nothing else may come out of a decoder.
"""

from typing import ClassVar, Self


class CoreError(Exception):
    """Base of every error raised by the core."""


class DecodeError(CoreError):
    """The bytes are wrong. `byte_position` counts from the start of the buffer which the decoder was given.

    Texts hold positions, sizes and codes but never the bytes themselves: exception texts reach Spark's event log.
    """

    code: ClassVar[str] = "DECODE_ERROR"

    def __init__(self, message: str, *, byte_position: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.byte_position = byte_position

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with the keyword argument, so that the position survives the way from a Spark worker."""
        return _rebuild, (type(self), self.message, self.byte_position)


def _rebuild(kind: type[DecodeError], message: str, byte_position: int | None) -> DecodeError:
    return kind(message, byte_position=byte_position)


class BufferUnderflow(DecodeError):
    """The buffer ends inside a value."""

    code = "BUFFER_UNDERFLOW"


class LengthOutOfBounds(DecodeError):
    """A length, count or size which the bytes left cannot hold, or which is negative where that is not allowed."""

    code = "LENGTH_OUT_OF_BOUNDS"


class VarintTooLong(DecodeError):
    """A variable-length integer of more than 5 (int32) or 10 (int64) bytes."""

    code = "VARINT_TOO_LONG"


class NullNotAllowed(DecodeError):
    """Null in a field which cannot be null in this version."""

    code = "NULL_NOT_ALLOWED"


class UnknownRecordType(DecodeError):
    """A key type no declaration knows. Kafka warns and skips it (UnknownRecordTypeException); so does replay."""

    code = "UNKNOWN_RECORD_TYPE"


class UnknownValueVersion(DecodeError):
    """A value version no declaration knows. Kafka's loader fails (UnknownRecordVersionException); we quarantine."""

    code = "UNKNOWN_VALUE_VERSION"


class InvalidBatch(DecodeError):
    """A batch header whose fields cannot be true together."""

    code = "INVALID_BATCH"


class CrcMismatch(DecodeError):
    """The checksum in the header is not the checksum of the bytes."""

    code = "CRC_MISMATCH"


class UnknownCodec(DecodeError):
    """A compression codec id outside 0..4."""

    code = "UNKNOWN_CODEC"


class DecompressionFailed(DecodeError):
    """The compressed section is not what its codec writes."""

    code = "DECOMPRESSION_FAILED"


class DecompressedTooLarge(DecodeError):
    """The decompressed section passes the limit: a compression bomb, or a limit set too low."""

    code = "DECOMPRESSED_TOO_LARGE"


class InvalidRecord(DecodeError):
    """A record which does not use exactly its declared length, or whose fields cannot be true."""

    code = "INVALID_RECORD"


class StateUnreadable(CoreError):
    """Saved state of an earlier run was not written by this version of the code: rebuild it from the log."""


class ReplayFault(Exception):
    """A fault of the code itself at a record: any other exception than the ones on this page is its cause.

    It names the group and the place, so that whoever replays can leave that group out.
    """

    def __init__(self, message: str, *, group_id: str, log_offset: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.group_id = group_id
        self.log_offset = log_offset

    @classmethod
    def of(cls, error: Exception, group_id: str, log_offset: int | None = None) -> Self:
        """From the exception that is its cause."""
        place = "" if log_offset is None else f" at log offset {log_offset}"
        message = f"replay of group {group_id!r} failed{place}: {type(error).__name__}: {error}"
        return cls(message, group_id=group_id, log_offset=log_offset)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with the keyword arguments: it comes from Spark workers."""
        return _rebuild_fault, (type(self), self.message, self.group_id, self.log_offset)


def _rebuild_fault(kind: type[ReplayFault], message: str, group_id: str, log_offset: int | None) -> ReplayFault:
    return kind(message, group_id=group_id, log_offset=log_offset)


class EncodeError(CoreError):
    """The caller asked to encode a value which the wire format cannot hold."""


class UnprintedRecord(EncodeError):
    """A tool's line does not give its record. `group_id`: whose record it is, where that is known."""

    def __init__(self, message: str, group_id: str | None = None) -> None:
        super().__init__(message)
        self.group_id = group_id

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with both arguments."""
        return type(self), (str(self), self.group_id)


class UnprintedFields(UnprintedRecord):
    """A tool printed a record without what makes it one."""


class LaterKafka(UnprintedRecord):
    """A record has a type, a version or a name that no release wrote which this version knows."""


class TruncatedBatch(DecodeError):
    """The segment ends inside a batch: a torn tail, or a file which was cut."""

    code = "TRUNCATED_BATCH"


class InvalidCheckpoint(DecodeError):
    """A checkpoint file of a broker's log directory which is not what CheckpointFile writes."""

    code = "INVALID_CHECKPOINT"


class NotRedactable(DecodeError):
    """Compressed messages of a format of before Kafka 0.11: each inside has a checksum of its own."""

    code = "NOT_REDACTABLE"


class InvalidMessage(CoreError):
    """JSON which is not that of the message."""


class ContradictoryRecord(CoreError):
    """A command wrote a record which contradicts the state: a fault of the command, not of its caller."""


class UnknownSetting(CoreError):
    """A property which no coordinator reads, or a value which it cannot have."""


class IllegalTransition(CoreError):
    """A state which may not follow the present one. Nothing is changed."""


class ContradictoryLog(CoreError):
    """A record of the log contradicts the state which those before it gave: the coordinator cannot load."""


class NoSuchReplica(CoreError):
    """A broker which does not hold the partition, or may not lead it now."""


class UnknownRequest(CoreError):
    """An answer to a request which is not under way."""


class ColumnarReplayError(CoreError):
    """The columnar replay was used wrongly, or contradicts itself."""


class IllegalClientState(CoreError):
    """A transition which the table does not hold: a fault of the client's code."""


class LookupKeyError(CoreError):
    """A key which no coordinator topic can hold."""


class PastDiffers(CoreError):
    """What was said of the part of a log that is settled no longer holds."""


class PastTooShort(CoreError):
    """What is kept of a group does not decide what is new: it is to be judged from its beginning."""


class NoInternalTopic(CoreError):
    """A topic which no coordinator keeps its state in."""


class IllegalEvent(CoreError):
    """An event which cannot come in this state. Nothing is changed."""


class UnknownKafkaVersion(CoreError):
    """A text that names no release whose rules are known."""


class WhatIfError(CoreError):
    """What was asked cannot be answered; the message says why, and what to ask instead."""


class UnreadMetadataType(EncodeError):
    """A record of the metadata log whose type is none of those this project reads."""
