"""The interface of a group type (see the docstring of the package)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from coordinator_core.live.coordinator.operation import Command, Context, Coordinator, Function, GroupRules
from coordinator_core.live.state_dump import Json


@dataclass(frozen=True, slots=True)
class GroupModule:
    """What one group type provides. See the docstring of the package."""

    name: str
    commands: Mapping[str, Command] = field(default_factory=dict)
    timers: Mapping[str, Function] = field(default_factory=dict)
    tasks: Mapping[str, Function] = field(default_factory=dict)
    on_loaded: Callable[[Context], None] | None = None
    on_unloaded: Callable[[Context], None] | None = None
    on_metadata: Callable[[Context, frozenset[str]], None] | None = None
    rules: Mapping[type, GroupRules] = field(default_factory=dict)
    add_to_dump: Callable[[Coordinator, dict[str, Json]], None] | None = None
