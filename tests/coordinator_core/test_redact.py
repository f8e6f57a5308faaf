"""Ids are replaced wherever they stand as ids, and nowhere else; a batch stays one that Kafka reads."""

import struct

import msgspec
import pytest

from coordinator_core.bytes.log.batch import Record, build_batch, parse_header, verify_crc
from coordinator_core.bytes.log.compression import Codec, decompress
from coordinator_core.bytes.log.redact import HEADER_BYTES, Redaction, pseudonym
from coordinator_core.errors import CoreError, NotRedactable

KEY = b"k" * 32
UUID = "-0f8fad5b-d9cb-469f-a165-70867728950e"
KAFKA_UUID = "-9m1sR2zqQhS0z4xkqPzUYw"


def redaction(*ids: str) -> Redaction:
    """Of these ids."""
    return Redaction.of(ids, KEY)


def int16_text(text: str) -> bytes:
    """As formats of before KIP-482 hold it."""
    return struct.pack(">h", len(text)) + text.encode()


def compact_text(text: str) -> bytes:
    """As flexible formats hold it."""
    return bytes([len(text) + 1]) + text.encode()


FOUND = {
    "int16": int16_text("alice-laptop"),
    "compact": compact_text("alice-laptop"),
    "compact, then a count that looks like a character": compact_text("alice-laptop") + b"0",
    "int16 after a character": b"x" + int16_text("alice-laptop") + b"x",
    "head of a member id": b"9" + int16_text("alice-laptop" + UUID) + b"9",
    "head of a compact member id": compact_text("alice-laptop" + KAFKA_UUID) + b"9",
    "MessagePack": msgspec.msgpack.encode({"client_id": "alice-laptop", "member": "alice-laptop" + UUID}),
    "words": b"restarted by alice-laptop, again",
    "alone": b"alice-laptop",
}


@pytest.mark.parametrize("case", FOUND)
def test_an_id_is_found_where_it_is(case: str) -> None:
    """Whatever way its length is written, and whatever comes after it; all other bytes stay."""
    data = FOUND[case]
    made = redaction("alice-laptop").of_bytes(data)
    assert b"alice-laptop" not in made
    assert made.replace(pseudonym(b"alice-laptop", KEY), b"alice-laptop") == data


def test_an_address_is_found_in_a_url() -> None:
    """Connect's workers write theirs into what they subscribe with; another port of a longer address is another."""
    made = redaction("10.0.0.1").of_bytes(int16_text("http://10.0.0.1:8083/") + b"\x00")
    assert b"10.0.0.1" not in made
    assert made.endswith(b":8083/\x00")
    assert redaction("2001:db8:0:1").of_bytes(b"/2001:db8:0:1:80") == b"/2001:db8:0:1:80"


@pytest.mark.parametrize(
    "data",
    [int16_text("/10.0.0.12"), compact_text("/10.0.0.12"), b"see /10.0.0.1.example", int16_text("x-10.0.0.1")],
)
def test_other_ids_stay(data: bytes) -> None:
    """An id that merely holds the same characters is another one."""
    assert redaction("/10.0.0.1", "10.0.0.1").of_bytes(data) == data
    assert redaction("/10.0.0.1").of_text("/10.0.0.1") != "/10.0.0.1"


def test_pseudonyms_tell_nothing() -> None:
    """As long as the id, the same for the same id and key; with another key another; an address remains one."""
    for id_ in (b"abcd", "größe-組".encode(), b"alice-laptop", b"x" * 100, b"/10.0.0.1"):
        made = pseudonym(id_, KEY)
        assert (len(made), made) == (len(id_), pseudonym(id_, KEY))
        assert made not in (id_, pseudonym(id_, b"other"))
        assert made.decode().isascii()
    assert pseudonym(b"/10.0.0.1", KEY).startswith(b"/")
    assert pseudonym(b"x" * 30, KEY).startswith(b"erased-")
    for id_ in (b"abc", b"x" * 32_768):
        with pytest.raises(ValueError, match="an id of 4 to 32767 bytes"):
            pseudonym(id_, KEY)
    with pytest.raises(ValueError, match="as long as the id"):
        Redaction({b"abcd": b"abc"})


def test_texts_that_are_no_unicode_stay_whole() -> None:
    """A lone surrogate is carried through."""
    assert redaction("abcd").of_text("\ud800 abcd").startswith("\ud800 ")
    assert redaction("abcd").of_text("plain") == "plain"


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_is_whole_again(codec: Codec) -> None:
    """Same records but for the id, same codec, right size and checksum; without the id not a byte changes."""
    records = [
        Record(offset=7, timestamp_ms=5, key=int16_text("g"), value=int16_text("alice-laptop") + b"\x00" * 200),
        Record(offset=8, timestamp_ms=5, key=int16_text("alice-laptop" + UUID), value=None),
    ]
    batch = build_batch(records, codec_id=codec)
    made = redaction("alice-laptop").of_batch(batch)
    verify_crc(made)
    before, after = parse_header(batch), parse_header(made)
    assert after.size == len(made)
    assert (after.base_offset, after.record_count, after.codec_id) == (before.base_offset, 2, codec)
    plain = decompress(codec, made[HEADER_BYTES:])
    assert b"alice" not in plain
    expected = decompress(codec, batch[HEADER_BYTES:])
    assert plain.replace(pseudonym(b"alice-laptop", KEY), b"alice-laptop") == expected
    assert redaction("nobody-here").of_batch(batch) == batch


def test_batches_that_cannot_be_read() -> None:
    """Damaged bytes are redacted as they stand; old compressed messages are refused, not passed over."""
    assert b"alice-laptop" not in redaction("alice-laptop").of_batch(b"short " + b"alice-laptop")
    batch = bytearray(build_batch([Record(offset=0, timestamp_ms=0, key=b"k", value=b"v")], codec_id=Codec.GZIP))
    batch[HEADER_BYTES:] = b"\x00 alice-laptop"
    assert b"alice-laptop" not in redaction("alice-laptop").of_batch(bytes(batch))
    old = bytearray(100)
    old[17] = 1
    with pytest.raises(NotRedactable):
        redaction("alice-laptop").of_batch(bytes(old))
    assert issubclass(NotRedactable, CoreError)
    old[17] = 0
    assert redaction("alice-laptop").of_batch(bytes(old)) == bytes(old)
    old[40:40] = int16_text("alice-laptop")
    made = redaction("alice-laptop").of_batch(bytes(old))
    assert b"alice-laptop" not in made
    verify_crc(made)
