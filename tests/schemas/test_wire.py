"""The declaration language: version ranges and names."""

import pytest

from schemas.wire import Field, Int32, Message, Prefix, Role, kafka_field_name, message_versions, version_range

RANGES = [
    ("0", 4, [0]),
    ("0+", 4, [0, 1, 2, 3, 4]),
    ("3+", 4, [3, 4]),
    ("1-3", 4, [1, 2, 3]),
    ("1-3", 2, [1, 2]),
    ("5+", 4, []),
    ("none", 4, []),
]


@pytest.mark.parametrize(("text", "highest", "versions"), RANGES)
def test_version_range_holds_what_its_text_says(text: str, highest: int, versions: list[int]) -> None:
    """A range text names versions up to the message's highest."""
    assert list(version_range(text, highest)) == versions


@pytest.mark.parametrize(("text", "versions"), [("0", [0]), ("0-3", [0, 1, 2, 3])])
def test_message_versions_are_all_versions(text: str, versions: list[int]) -> None:
    """A message's versions come lowest first, none left out."""
    assert list(message_versions(Message("M", Role.KEY, Prefix.NONE, versions=text, fields=()))) == versions


NAMES = [
    (Field("epoch", Int32), "epoch"),
    (Field("commit_timestamp", Int32), "commitTimestamp"),
    (Field("transaction_last_update_timestamp_ms", Int32), "transactionLastUpdateTimestampMs"),
    (Field("config_offset", Int32, kafka_name="config-offset"), "config-offset"),
]


@pytest.mark.parametrize(("field", "kafka_name"), NAMES, ids=[name for _, name in NAMES])
def test_kafka_field_name_is_kafkas(field: Field, kafka_name: str) -> None:
    """A field's snake_case name gives Kafka's camelCase back."""
    assert kafka_field_name(field) == kafka_name
