"""Releases, and since which of them a rule holds."""

import pytest

from coordinator_core.bytes.kafka_versions import (
    KNOWN_VERSIONS,
    KafkaVersion,
    Since,
    kafka_version,
    least_release,
    production_level,
)
from coordinator_core.errors import UnknownKafkaVersion


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


@pytest.mark.parametrize(
    ("level", "release"),
    [(1, None), (7, (3, 3)), (21, (3, 9)), (24, (3, 9)), (25, (4, 0)), (32, (4, 3)), (33, (4, 4)), (40, (4, 4))],
)
def test_a_level_of_metadata_version_names_the_oldest_possible_release(
    level: int, release: tuple[int, int] | None
) -> None:
    """An unstable level is of the release before it; a level that nobody knows is of the newest release."""
    assert least_release(level) == release


def test_a_cluster_made_by_a_release_proves_that_release() -> None:
    """The level that it comes with is the first that no older one has."""
    for version in KNOWN_VERSIONS:
        assert least_release(production_level(version)) == version
        assert (least_release(production_level(version) - 1) or (0, 0)) < version


def test_a_rule_is_proven_by_the_oldest_possible_release_alone() -> None:
    """Nothing is proven where no release is known."""
    rule = Since.PREFERRED_ASSIGNOR_BUMPS_EPOCH
    assert [rule.is_proven_by(it) for it in (None, KafkaVersion(4, 3), KafkaVersion(4, 4))] == [False, False, True]
