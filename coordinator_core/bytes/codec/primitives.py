"""Building blocks of all encodings: varints, text, uuids."""

import binascii
import codecs
import re
from functools import lru_cache
from typing import Final

from coordinator_core.errors import EncodeError, VarintTooLong

Buffer = bytes | memoryview

UUID_BYTES: Final = 16
UUID_CACHE_SIZE: Final = 65_536
"""Topic ids repeat in nearly every record; the text of this many is cached."""

_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_TO_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """An unsigned varint as an int32 (ByteUtils.readUnsignedVarint), and the position after it."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for index in range(1, 5):
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            value &= 0xFFFFFFFF
            return value - ((value & 0x80000000) << 1), position + index + 1
    raise VarintTooLong("varint of more than 5 bytes", byte_position=position)


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint (ByteUtils.writeUnsignedVarint)."""
    value &= 0xFFFFFFFF
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _java_replacement(error: UnicodeError) -> tuple[str, int]:
    """U+FFFD where Java puts one. Java counts an encoded surrogate (ED A0..BF xx) as one fault, Python as two or three;
    for all other faults both follow Unicode's "maximal subpart"."""
    assert isinstance(error, UnicodeDecodeError), "used for decoding only"
    data, start = error.object, error.start
    surrogate = _ENCODED_SURROGATE.match(data, start)
    if surrogate:
        return "\ufffd", surrogate.end()
    return "\ufffd", error.end


codecs.register_error("groupledger-java", _java_replacement)


@lru_cache(maxsize=UUID_CACHE_SIZE)
def uuid_text(data: bytes) -> str:
    """Uuid.toString: URL-safe base64 of the 16 bytes, without padding."""
    return binascii.b2a_base64(data, newline=False)[:22].translate(_TO_URL_SAFE).decode("ascii")


@lru_cache(maxsize=UUID_CACHE_SIZE)
def uuid_bytes(text: str) -> bytes:
    """Uuid.fromString. Raises EncodeError for a text that is not a uuid."""
    try:
        data = binascii.a2b_base64(text.encode("ascii").translate(_FROM_URL_SAFE) + b"==", strict_mode=True)
    except ValueError:
        data = b""
    if len(data) != UUID_BYTES or uuid_text(data) != text:
        raise EncodeError("not a uuid: 22 characters of URL-safe base64 expected")
    return data
