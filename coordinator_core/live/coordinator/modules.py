"""The group types that a coordinator serves, one line each."""

from typing import Final

from coordinator_core.live.classic import commands as classic
from coordinator_core.live.consumer import commands as consumer
from coordinator_core.live.coordinator.group_module import GroupModule
from coordinator_core.live.offsets import commands as offsets
from coordinator_core.live.share import commands as share
from coordinator_core.live.streams import commands as streams

MODULES: Final[tuple[GroupModule, ...]] = (
    classic.MODULE,
    offsets.MODULE,
    consumer.MODULE,
    share.MODULE,
    streams.MODULE,
)
"""In the order in which they are called after a load: it decides ties between timers set there."""
