"""The hash of topic metadata, against what hash4j and Kafka's own class gave."""

import pytest

from coordinator_core.live.coordinator.metadata_hash import xxh3_64

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
