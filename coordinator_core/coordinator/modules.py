"""The group types that a coordinator serves, one line each."""

from typing import Final

from coordinator_core.classic import commands as classic
from coordinator_core.consumer import commands as consumer
from coordinator_core.coordinator.group_module import GroupModule
from coordinator_core.offsets import commands as offsets
from coordinator_core.share import commands as share
from coordinator_core.streams import commands as streams

MODULES: Final[tuple[GroupModule, ...]] = (
    classic.MODULE,
    offsets.MODULE,
    consumer.MODULE,
    share.MODULE,
    streams.MODULE,
)
"""In the order in which they are called after a load: it decides ties between timers set there."""
