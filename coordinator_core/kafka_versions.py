"""Releases of Kafka, and the one table of what the coordinators do since which of them.

Code asks `Since.NAME.holds_in(version)` at the place where the rule stands; nothing else compares versions.
"""

from enum import Enum
from typing import Final, NamedTuple

from coordinator_core.errors import CoreError


class UnknownKafkaVersion(CoreError):
    """A text that names no release whose rules are known."""


class KafkaVersion(NamedTuple):
    """A release: major and minor number."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


KNOWN_VERSIONS: Final = tuple(KafkaVersion(4, minor) for minor in range(5))
"""Releases that a coordinator can be run as."""

DEFAULT_VERSION: Final = KafkaVersion(4, 3)
"""Where nothing says which release."""


def kafka_version(text: str) -> KafkaVersion:
    """The release that a text such as `4.3` or `4.3.1` names. Raises UnknownKafkaVersion for all others."""
    for version in KNOWN_VERSIONS:
        if text == str(version) or text.startswith(f"{version}."):
            return version
    known = ", ".join(str(version) for version in KNOWN_VERSIONS)
    raise UnknownKafkaVersion(f"no Kafka version {text!r} is known: use one of {known}")


class Since(Enum):
    """A rule of the coordinators, and the first release that follows it."""

    EPOCHS_BEGIN_AT_1 = KafkaVersion(4, 3), "a fresh group has epoch 1, so that its first change writes 2 (ModernGroup)"

    def __init__(self, version: KafkaVersion, about: str) -> None:
        self.version = version
        self.about = about

    def holds_in(self, version: KafkaVersion) -> bool:
        """Whether a release follows the rule."""
        return version >= self.version
