"""The hash of topic metadata, against what hash4j and Kafka's own class gave."""

import pytest

from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.coordinator.metadata_hash import metadata_hash, topic_hash, xxh3_64

COUNTING = bytes(range(256)) * 20
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize(
    ("byte_count", "expected"),
    [
        (0, 3244421341483603138),
        (1, -4302098779834749733),
        (6, -6460328875922888956),
        (12, 6543284205211650379),
        (40, -3625228911788322244),
        (100, 22042537110060316),
        (200, -852719212082297085),
        (241, 209643423615708418),
        (1024, -6309269121238725342),
        (1025, 8703327852945446994),
        (5120, -543261023690694784),
    ],
)
def test_xxh3_of_every_kind_of_length(byte_count: int, expected: int) -> None:
    """Short inputs, pairs from both ends, one block and several have rules of their own."""
    assert xxh3_64(COUNTING[:byte_count]) == expected % 2**64


def test_a_topic_is_hashed_with_id_name_and_partitions() -> None:
    """Any of the three changes the hash."""
    topic = Topic("foo", TOPIC_ID, 3)
    others = (Topic("fop", TOPIC_ID, 3), Topic("foo", TOPIC_ID[:-1] + "g", 3), Topic("foo", TOPIC_ID, 4))
    assert topic_hash(topic) == -2222617492149574800
    assert topic_hash(Topic("foo", TOPIC_ID, 1000)) == -5039563389681154806
    assert len({topic_hash(other) for other in (topic, *others)}) == 4


def test_a_group_is_hashed_over_topics_which_exist() -> None:
    """In the order of names, whatever order they come in; a group without topics has zero."""
    foo, bar = Topic("foo", TOPIC_ID, 3), Topic("bar", TOPIC_ID[:-1] + "g", 4)
    image = image_of([foo, bar])
    assert metadata_hash(image, ["foo", "bar", "foo"]) == metadata_hash(image, ["bar", "foo", "nowhere"])
    assert metadata_hash(image, ["foo"]) != metadata_hash(image, ["bar"])
    assert metadata_hash(image, ["nowhere"]) == metadata_hash(image, []) == 0
