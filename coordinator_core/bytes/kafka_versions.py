"""Releases of Kafka, and the one table of coordinator rules by the release that introduced each.

Code calls `Since.NAME.holds_in(version)` where the rule applies; nothing else compares versions.
"""

from enum import Enum
from typing import Final, NamedTuple

from coordinator_core.errors import UnknownKafkaVersion

METADATA_VERSION: Final = "metadata.version"
"""A cluster feature whose level gives the oldest release that a broker may have (FeatureLevelRecord)."""


class KafkaVersion(NamedTuple):
    """A release: major and minor number."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


KNOWN_VERSIONS: Final = tuple(KafkaVersion(4, minor) for minor in range(5))
"""Releases whose rules a coordinator can follow."""

DEFAULT_VERSION: Final = KafkaVersion(4, 3)
"""The release if none is given."""


def kafka_version(text: str) -> KafkaVersion:
    """The release that a text such as `4.3` or `4.3.1` names. Raises UnknownKafkaVersion for all others."""
    for version in KNOWN_VERSIONS:
        if text == str(version) or text.startswith(f"{version}."):
            return version
    known = ", ".join(str(version) for version in KNOWN_VERSIONS)
    raise UnknownKafkaVersion(f"no Kafka version {text!r} is known: use one of {known}")


PRODUCTION_LEVELS: Final = (
    (7, KafkaVersion(3, 3)),
    (8, KafkaVersion(3, 4)),
    (11, KafkaVersion(3, 5)),
    (14, KafkaVersion(3, 6)),
    (19, KafkaVersion(3, 7)),
    (20, KafkaVersion(3, 8)),
    (21, KafkaVersion(3, 9)),
    (25, KafkaVersion(4, 0)),
    (27, KafkaVersion(4, 1)),
    (29, KafkaVersion(4, 2)),
    (30, KafkaVersion(4, 3)),
    (33, KafkaVersion(4, 4)),
)
"""The level of metadata.version that each release comes with (MetadataVersion.LATEST_PRODUCTION). Levels between two of
them are unstable; the older release may have them as well."""


def least_release(metadata_version: int) -> KafkaVersion | None:
    """The oldest release that brokers of a cluster at this level of metadata.version may have; None: older than 3.3.

    Every broker has that release or a newer one, since the controller finalizes a level only if all of them support it.
    An upgrade may leave the level where it was, so the level does not bound the release from above.
    """
    known = [release for level, release in PRODUCTION_LEVELS if level <= metadata_version]
    return known[-1] if known else None


def production_level(version: KafkaVersion) -> int:
    """The level of metadata.version that a cluster created by a release has."""
    return next(level for level, release in PRODUCTION_LEVELS if release == version)


RELEASE_4_4: Final = KafkaVersion(4, 4)


class Since(Enum):
    """A rule of the coordinators, and the first release that follows it."""

    METADATA_HASH = KafkaVersion(4, 1), "groups other than classic keep a hash of their topics, none without topics"
    COMMITS_KEEP_TOPIC_IDS = (
        KafkaVersion(4, 1),
        "OffsetCommitValue has version 4, with the topic's id (KIP-848); before, version 3 without",
    )
    SHARE_STATE_COUNTS_COMPLETE = (
        KafkaVersion(4, 2),
        "the state of a share partition has its delivery complete count (KIP-1226)",
    )
    EPOCHS_BEGIN_AT_1 = KafkaVersion(4, 3), "a fresh group has epoch 1, so that its first change writes 2 (ModernGroup)"
    STREAMS_ASSIGNMENT_CONFIGS = (
        KafkaVersion(4, 3),
        "streams groups keep the configs that their last assignment was made with",
    )
    TXN_COMMITS_HAVE_TOPIC_IDS = (
        RELEASE_4_4,
        "transactional commits keep the topic's id, and TxnOffsetCommit v6 says STALE_MEMBER_EPOCH and "
        "GROUP_ID_NOT_FOUND (KIP-1319)",
    )
    LAST_MEMBER_WRITES_ASSIGNMENT_EPOCH = (
        RELEASE_4_4,
        "when the last member of a modern group goes, the assignment epoch follows the group epoch, with timestamp 0",
    )
    PREFERRED_ASSIGNOR_BUMPS_EPOCH = RELEASE_4_4, "the group epoch goes up when members prefer another server assignor"
    STATIC_REJOIN_FITS_A_FULL_GROUP = (
        RELEASE_4_4,
        "group.consumer.max.size does not count a member whose instance id the group has",
    )
    MALFORMED_SUBSCRIPTION_IS_INCONSISTENT = (
        RELEASE_4_4,
        "a malformed subscription in JoinGroup is INCONSISTENT_GROUP_PROTOCOL, no longer UNKNOWN_SERVER_ERROR",
    )
    STATIC_MEMBER_KEEPS_TARGET = (
        RELEASE_4_4,
        "an equal target of a static member that was replaced in the same heartbeat is not written twice",
    )
    MEMBER_UPDATE_DROPS_INSTANCE_ID = RELEASE_4_4, "a member that changes its instance id gives up the one before"
    KNOWN_TOPICS_INITIALIZE_AT_0 = (
        RELEASE_4_4,
        "new partitions of topics that a share group knows are initialised with start offset 0, not -1",
    )
    STREAMS_HAVE_STATIC_MEMBERS = (
        RELEASE_4_4,
        "streams groups have static members, and a full one lets members in that it knows",
    )
    STREAMS_JOIN_SETS_ENDPOINT = (
        RELEASE_4_4,
        "who joins a streams group says its endpoint, or that it has none; any change of it counts as news",
    )
    STREAMS_ENDPOINTS_NAME_OWN_PARTITIONS = (
        RELEASE_4_4,
        "endpoints of streams members name partitions that the topic has",
    )
    STREAMS_TASK_OFFSETS = (
        RELEASE_4_4,
        "heartbeats of streams groups report offsets of tasks, and are answered with how often and with the lag that "
        "is acceptable (KIP-1071)",
    )
    STREAMS_STICKY_TO_CURRENT_TASKS = (
        RELEASE_4_4,
        "the sticky assignor of streams groups goes by the tasks that members have, no longer by their last targets",
    )
    STREAMS_TASKS_CHANGE_ROLE = (
        RELEASE_4_4,
        "a member of a streams group that has a task in one role takes it over in another without giving it up",
    )
    STREAMS_REFINED_ASSIGNMENT = (
        RELEASE_4_4,
        "streams members move to a refined assignment: a Stable group whose member lacks a task of it gets an epoch",
    )
    STREAMS_TOPOLOGY_BEGINS_UNVALIDATED = RELEASE_4_4, "a fresh streams group has validated topology epoch -1, not 0"
    ARCHIVING_IS_A_STATE = (
        RELEASE_4_4,
        "share.version 2: a record with a dead letter topic is ARCHIVING until its copy is done (KIP-1191)",
    )
    EQUAL_BATCHES_JOIN = (
        RELEASE_4_4,
        "state batches are combined by a sweep over their boundaries: neighbours of equal rank are always one batch",
    )
    SHARE_WRITES_KEEP_PROGRESS = (
        RELEASE_4_4,
        "a write lowers neither the start offset of a share partition nor its delivery complete count",
    )
    NEGATIVE_EPOCHS_ARE_INVALID = (
        RELEASE_4_4,
        "the share coordinator refuses a negative leader epoch or state epoch as INVALID_REQUEST; -1 is no wildcard",
    )
    STATE_EPOCH_MESSAGE_NAMES_NO_SHARE_GROUP = (
        RELEASE_4_4,
        "the message of FENCED_STATE_EPOCH no longer names the share coordinator",
    )

    def __init__(self, version: KafkaVersion, about: str) -> None:
        self.version = version
        self.about = about

    def holds_in(self, version: KafkaVersion) -> bool:
        """Whether a release follows the rule."""
        return version >= self.version

    def is_proven_by(self, least: KafkaVersion | None) -> bool:
        """Whether a coordinator followed the rule, given the oldest release that it may have been. False for None."""
        return least is not None and self.holds_in(least)
