"""Replaces ids in bytes by pseudonyms of the same length, wherever they are used as ids.

Because the length stays, nothing else has to change: no length prefix and no record size, whatever its type or version.
This includes unknown types, and what clients nest in their bytes. Only a batch's checksum is recomputed.

Bytes are an id where they fill a whole string (preceded by its length, as in Kafka's formats and MessagePack), at the
start of a member id that was derived from it (`<client id>-<uuid>`), or between characters that cannot be part of an
id: the address `/10.0.0.1` is not found in `/10.0.0.12`.
"""

import hmac
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from coordinator_core.bytes.log.batch import with_crc
from coordinator_core.bytes.log.compression import Codec, compress, decompress
from coordinator_core.errors import DecodeError, NotRedactable

ID_BYTES_MIN: Final = 4
"""Shorter ids would be found everywhere."""
ID_BYTES_MAX: Final = 32_767
"""Bound of a string in a record."""
LABEL: Final = b"erased-"
"""Prefix of a pseudonym that is long enough for it."""
LABEL_ROOM: Final = 20

ID_CHARACTERS: Final = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.:-")
MADE_OF_IT: Final = re.compile(rb"-(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9A-Za-z_-]{22})")
"""What Kafka appends to a client id to make a member id: a UUID, printed by Java or by Kafka."""

PORT: Final = re.compile(rb":[0-9]{1,5}(?![0-9A-Za-z.:-])")
"""What may follow an address: Connect workers write their URLs into their subscription metadata."""

HEADER_BYTES: Final = 61
"""Header of a batch of message format v2, up to its records (DefaultRecordBatch.RECORDS_OFFSET)."""
ATTRIBUTES_POSITION: Final = 21
MAGIC_POSITION: Final = 16
CODEC_MASK: Final = 7
LENGTH_POSITION: Final = 8
LENGTH_FROM: Final = 12
"""Where the bytes counted by a batch's length begin."""


@dataclass(frozen=True)
class Redaction:
    """Ids, and their pseudonyms of the same length in bytes."""

    pseudonyms: Mapping[bytes, bytes]

    def __post_init__(self) -> None:
        if any(len(id_) != len(other) for id_, other in self.pseudonyms.items()):
            raise ValueError("a pseudonym is as long as the id")

    @classmethod
    def of(cls, ids: Iterable[str], key: bytes) -> "Redaction":
        """Pseudonyms of some ids. Without the key, a pseudonym cannot be traced to its id."""
        return cls({id_: pseudonym(id_, key) for id_ in (text.encode() for text in ids)})

    @cached_property
    def _pattern(self) -> re.Pattern[bytes]:
        longest_first = sorted(self.pseudonyms, key=len, reverse=True)
        return re.compile(b"|".join(map(re.escape, longest_first)))

    def may_be_in(self, data: bytes | memoryview) -> bool:
        """Whether the bytes of one of the ids occur at all, as an id or not."""
        return self._pattern.search(data) is not None

    def of_bytes(self, data: bytes) -> bytes:
        """The same bytes with pseudonyms."""
        found = list(self._found(data))
        if not found:
            return data
        changed = bytearray(data)
        for start, end in found:
            changed[start:end] = self.pseudonyms[data[start:end]]
        return bytes(changed)

    def of_text(self, text: str) -> str:
        """The same text with pseudonyms."""
        data = text.encode("utf-8", "surrogatepass")
        return self.of_bytes(data).decode("utf-8", "surrogatepass") if self.may_be_in(data) else text

    def of_batch(self, batch: bytes) -> bytes:
        """The same batch with pseudonyms and a matching checksum; an unreadable batch stays damaged.

        Raises NotRedactable.
        """
        if len(batch) < HEADER_BYTES:
            return self.of_bytes(batch)
        if batch[MAGIC_POSITION] < 2:
            if batch[MAGIC_POSITION + 1] & CODEC_MASK:
                raise NotRedactable("compressed messages of format v0 or v1 cannot be redacted")
            changed = self.of_bytes(batch)
            return batch if changed == batch else with_crc(changed)
        (attributes,) = struct.unpack_from(">h", batch, ATTRIBUTES_POSITION)
        codec = attributes & CODEC_MASK
        stored = batch[HEADER_BYTES:]
        try:
            records = decompress(codec, stored)
        except DecodeError:
            return self.of_bytes(batch)
        redacted = self.of_bytes(records)
        if redacted == records:
            return batch
        body = redacted if codec == Codec.NONE else compress(codec, redacted)
        made = bytearray(batch[:HEADER_BYTES] + body)
        struct.pack_into(">i", made, LENGTH_POSITION, len(made) - LENGTH_FROM)
        return with_crc(bytes(made))

    def _found(self, data: bytes) -> Iterator[tuple[int, int]]:
        for match in self._pattern.finditer(data):
            if _is_id(data, match.start(), match.end()):
                yield match.span()


def pseudonym(id_: bytes, key: bytes) -> bytes:
    """The pseudonym of an id: its HMAC-SHA256 in hexadecimal, with the length of the id.

    An address keeps its `/`, which marks it as an address. Raises ValueError for an id too short to be distinct.
    """
    if not ID_BYTES_MIN <= len(id_) <= ID_BYTES_MAX:
        raise ValueError(f"an id of {ID_BYTES_MIN} to {ID_BYTES_MAX} bytes can be erased")
    digest = hmac.new(key, id_, "sha256").hexdigest().encode()
    head = b"/" if id_.startswith(b"/") else LABEL if len(id_) >= LABEL_ROOM else b""
    body = digest * (1 + len(id_) // len(digest))
    return head + body[: len(id_) - len(head)]


def _is_id(data: bytes, start: int, end: int) -> bool:
    more = MADE_OF_IT.match(data, end)
    is_ended = end == len(data) or data[end] not in ID_CHARACTERS or more is not None
    if not is_ended and b":" not in data[start:end]:
        is_ended = PORT.match(data, end) is not None
    before = data[max(0, start - 5) : start]
    if is_ended or not before.endswith(b"\x00" + _uvarint(end - start + 1)):
        lengths = [end - start, *([end - start + len(more[0])] if more else [])]
        if before.endswith(tuple(prefix for length in lengths for prefix in _prefixes(length))):
            return True
    # otherwise these two bytes are the int16 length of a string that is longer by one: its last character follows the
    # id
    is_begun = start == 0 or data[start - 1] not in ID_CHARACTERS
    return is_begun and is_ended


def _prefixes(length: int) -> Iterator[bytes]:
    """The encodings of a string length before the string: int16, uvarint of length + 1, and those of MessagePack."""
    yield length.to_bytes(2, "big")
    yield _uvarint(length + 1)
    if length < 32:
        yield bytes([0xA0 | length])
    if length < 256:
        yield bytes([0xD9, length])
    yield b"\xda" + length.to_bytes(2, "big")


def _uvarint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
