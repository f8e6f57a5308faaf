"""Copies of archived records on dead-letter topics (KIP-1191, Kafka 4.4): found, missing, or not due yet.

A broker copies records that are rejected or reach the delivery limit to the topic in the group's config
`errors.deadletterqueue.topic.name`; headers of the copy identify the original. Key and value are copied only with
`errors.deadletterqueue.copy.record.enable`. Copies are written later and retried, so there may be duplicates, and a
missing copy may still come.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from coordinator_core.bytes.log.batch import Record
from coordinator_core.bytes.log.records import iter_records
from coordinator_core.errors import DecodeError
from jobs.errors import SourceError
from jobs.sources.broker import Broker
from jobs.sources.broker_log import list_broker_logs, read_ranges
from jobs.sources.segments import SegmentRead, find_partitions, read_segment
from schemas.dead_letters import (
    HEADER_DELIVERY_COUNT,
    HEADER_GROUP,
    HEADER_MESSAGE,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_TOPIC,
    DeadLetterCause,
    DeadLetterOrigin,
)

CAUSE_OF_MESSAGE: Final[Mapping[str, str]] = {cause.value: cause.name for cause in DeadLetterCause}
"""The message in a copy, and the `likely_cause` that it confirms."""

COPIED_CAUSES: Final = frozenset({"REJECT_OR_GAP", "LIMIT_OR_REJECT"})
"""Causes in gold.archived_records that brokers copy; records that the start offset passes are not copied."""
SETTLING_MS: Final = 60_000
"""A copy counts as missing if the dead-letter topic has records this long after the record was archived. Brokers
retry for less time."""
NUMBER_DIGITS_MAX: Final = 19
_NOT_YET_SEEN_MS: Final = -1


class CopyState(StrEnum):
    """The state of an archived offset's copy."""

    FOUND = "FOUND"
    MISSING = "MISSING"
    """The broker is done with it, or the dead-letter topic continues long after it, and there is no copy. Before
    Kafka 4.4 introduced ARCHIVING, a gap in the source log looked the same."""
    NOT_YET = "NOT_YET"
    """The dead-letter topic, as far as it was read, ends before the copy is due."""
    NOT_COPIED = "NOT_COPIED"
    """Brokers make no copy for this cause."""
    REFUSED = "REFUSED"
    """The broker refused a copy: the dead-letter topic is not enabled for groups."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One copy, by its position."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    delivery_count: int | None
    message: str | None
    """The reason, as the broker's message gives it."""


@dataclass(slots=True)
class DeadLetters:
    """All copies on some dead-letter topics, as far as they were read."""

    letters: dict[DeadLetterOrigin, list[DeadLetter]] = field(default_factory=dict)
    newest_ms: int = _NOT_YET_SEEN_MS
    """Timestamp of the newest record, epoch ms; -1 where there is none."""
    unreadable_count: int = 0
    """Batches that could not be read; copies in them would seem to be missing."""

    def state_of(
        self,
        origin: DeadLetterOrigin,
        cause: str,
        given_up_ms: int,
        dead_letter: str | None = None,
        *,
        is_done: bool = False,
    ) -> CopyState:
        """The state of the copy of an offset that was archived at a time (epoch ms).

        `cause` and `dead_letter`: from gold.archived_records. `is_done`: its ARCHIVING has ended, so the broker wrote
        the copy before, or gave up.
        """
        if origin in self.letters:
            return CopyState.FOUND
        if dead_letter == "REFUSED":
            return CopyState.REFUSED
        if dead_letter == "NOT_TRIED" or cause not in COPIED_CAUSES:
            return CopyState.NOT_COPIED
        is_due = is_done or self.newest_ms >= given_up_ms + SETTLING_MS
        return CopyState.MISSING if is_due and not self.unreadable_count else CopyState.NOT_YET


def read_dead_letters(sources: Sequence[str], topics: Iterable[str], *, broker: Broker | None = None) -> DeadLetters:
    """Read the copies on the topics from all sources (folders or URIs as for `--segments`, and a live cluster).

    Raises SourceError where none of the sources has any of the topics, or one cannot be read.
    """
    found = DeadLetters()
    wanted = sorted(set(topics))
    missing: list[SourceError] = []
    for source in sources:
        try:
            logs = find_partitions(source, wanted)
        except SourceError as error:
            missing.append(error)
            continue
        for log in logs:
            for segment in log.segments:
                _add_read(found, log.topic, log.partition, read_segment(segment))
    is_found = len(missing) < len(sources)
    if broker is not None:
        live = list_broker_logs(broker, wanted, is_any_needed=False)
        is_found = is_found or bool(live)
        for asked, read in read_ranges(broker, [log.range() for log in live]):
            _add_read(found, asked.topic, asked.partition, read)
    if not is_found:
        raise missing[0] if missing else SourceError("no source to read dead letters from")
    for letters in found.letters.values():
        letters.sort(key=lambda letter: (letter.topic, letter.partition, letter.offset))
    return found


def _add_read(found: DeadLetters, topic: str, partition: int, read: SegmentRead) -> None:
    for row, is_control in enumerate(read.scan.batches.is_control.tolist()):
        if not is_control:
            _add(found, topic, partition, read.content(row))


def _add(found: DeadLetters, topic: str, partition: int, batch: bytes) -> None:
    try:
        records = list(iter_records(batch))
    except DecodeError:
        found.unreadable_count += 1
        return
    for record in records:
        found.newest_ms = max(found.newest_ms, record.timestamp_ms)
        origin = origin_of(record)
        if origin is None:  # not written by a broker
            continue
        headers = _texts(record)
        count = _number(headers.get(HEADER_DELIVERY_COUNT))
        message = headers.get(HEADER_MESSAGE)
        letter = DeadLetter(topic, partition, record.offset, record.timestamp_ms, count, message)
        letters = found.letters.setdefault(origin, [])
        # two sources may contain the same segment
        if letter not in letters:
            letters.append(letter)


def origin_of(record: Record) -> DeadLetterOrigin | None:
    """The original of a copy, from its headers; None where they are missing. Anyone may write such headers."""
    headers = _texts(record)
    group_id, topic = headers.get(HEADER_GROUP), headers.get(HEADER_TOPIC)
    partition, offset = _number(headers.get(HEADER_PARTITION)), _number(headers.get(HEADER_OFFSET))
    if group_id is None or topic is None or partition is None or offset is None:
        return None
    return DeadLetterOrigin(group_id, topic, partition, offset)


def _texts(record: Record) -> Mapping[str, str]:
    """Headers as text; the last one of each name (Headers.lastHeader)."""
    return {name: value.decode(errors="replace") for name, value in record.headers if value is not None}


def _number(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= NUMBER_DIGITS_MAX):
        return None
    return int(text)
