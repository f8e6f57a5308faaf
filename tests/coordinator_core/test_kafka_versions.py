"""Releases, and since which of them a rule holds."""

import pytest

from coordinator_core.errors import UnknownKafkaVersion
from coordinator_core.kafka_versions import KNOWN_VERSIONS, KafkaVersion, Since, kafka_version


def test_a_version_is_read_with_or_without_its_patch() -> None:
    """A broker says 4.3.1, a user 4.3."""
    assert [kafka_version(text) for text in ("4.3", "4.3.1", "4.0.0")] == [(4, 3), (4, 3), (4, 0)]


@pytest.mark.parametrize("text", ["", "4", "4.30", "3.9", "4.9", "four"])
def test_an_unknown_version_names_those_that_are_known(text: str) -> None:
    """Nothing is judged by the rules of another release without a word."""
    with pytest.raises(UnknownKafkaVersion, match=r"4\.0, 4\.1, 4\.2, 4\.3, 4\.4"):
        kafka_version(text)


def test_each_rule_begins_with_a_known_release_and_goes_on() -> None:
    """No rule ends."""
    for rule in Since:
        assert rule.version in KNOWN_VERSIONS
        assert not rule.holds_in(KafkaVersion(rule.version.major, rule.version.minor - 1))
        assert all(rule.holds_in(version) for version in KNOWN_VERSIONS if version >= rule.version)
