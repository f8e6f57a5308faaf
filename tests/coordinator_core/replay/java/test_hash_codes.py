"""Hash codes and natural orders, against what a JDK and Kafka's own classes printed."""

import pytest

from coordinator_core.replay.java.hash_codes import (
    share_partition_key_hash_code,
    signed,
    string_hash_code,
    string_order,
    uuid_hash_code,
    uuid_order,
)

A = "aphBLT6cwzX5gtVuaW0eHw"
J = "JlI6asN9z1uWnzr0ld53Ug"
SMALL_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
LARGE_ID = "eebIppdy-sTHC4RFUzzKGA"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("g", 103),
        ("group1", -1237460590),
        ("polygenelubricants", -(2**31)),
        ("\U0001f333", 0xD83C * 31 + 0xDF33),
    ],
)
def test_string_hash_code(text: str, code: int) -> None:
    """Java hashes UTF-16 units: a character outside the basic plane is two of them."""
    assert string_hash_code(text) == code


def test_string_hash_code_takes_a_lone_surrogate() -> None:
    """A Java string may hold half a pair, and so may a decoded one."""
    assert string_hash_code("\ud83c") == 0xD83C


def test_uuids() -> None:
    """Hash codes as the JDK's but for the sign, and an order of signed halves, not of texts."""
    assert [uuid_hash_code(A), uuid_hash_code(J)] == [-991213207 % 2**32, -428951401 % 2**32]
    assert sorted([A, J, "zG2dn1rmlClw57fMrAHgKw"], key=uuid_order) == ["zG2dn1rmlClw57fMrAHgKw", J, A]


def test_texts_are_compared_by_utf16_units() -> None:
    """A character beyond the basic plane comes before the last ones of it, in Java."""
    assert sorted(["\U0001f333", "\uff5e", "z"], key=string_order) == ["z", "\U0001f333", "\uff5e"]


@pytest.mark.parametrize(
    ("group_id", "topic_id", "partition", "code"),
    [
        ("sg", SMALL_ID, 0, 116_622),
        ("sg", SMALL_ID, 3, 116_715),
        ("sg", LARGE_ID, 0, -640_822_512),
        ("a", LARGE_ID, 3, -640_933_120),
        ("über", SMALL_ID, 0, 235_750_319),
        ("über", LARGE_ID, 3, -405_188_722),
    ],
)
def test_share_partition_keys(group_id: str, topic_id: str, partition: int, code: int) -> None:
    """SharePartitionKey.hashCode of Kafka 4.3.1."""
    assert signed(share_partition_key_hash_code((group_id, topic_id, partition))) == code
