"""Pictures of state machines, drawn from their transition tables: docs/images/states-*.svg.

States are on a circle in the order of their enum. Each transition is an arrow that bends to its left, so that both
directions between two states are visible.
"""

import math
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

from coordinator_core.live.classic.live import VALID_PREVIOUS as CLASSIC_GROUP
from coordinator_core.live.runtime.states import VALID_PREVIOUS as COORDINATOR
from coordinator_core.live.share_partition.states import VALID_PREVIOUS as RECORD
from coordinator_core.live.share_partition.states import VALID_PREVIOUS_PARTITION as SHARE_PARTITION
from simulator.simulation.clients.classic import VALID_PREVIOUS as CLASSIC_CLIENT

Table = Mapping[Any, Iterable[Any]]
PICTURES: Final[Mapping[str, tuple[str, Table]]] = {
    "states-classic-group.svg": ("A classic group", CLASSIC_GROUP),
    "states-classic-client.svg": ("A client of the classic protocol", CLASSIC_CLIENT),
    "states-share-record.svg": ("A record of a share partition", RECORD),
    "states-share-partition.svg": ("A share partition on its leader", SHARE_PARTITION),
    "states-coordinator.svg": ("A coordinator of one log partition", COORDINATOR),
}
"""File -> title, and new state -> its possible previous states."""

WIDTH, HEIGHT, MARGIN = 760, 460, 40
NODE_HEIGHT: Final = 34
BEND: Final = 0.16


def arrows(table: Table) -> list[tuple[str, str]]:
    """(from, to) for every transition of the table, except from a state to itself."""
    return [
        (name_of(before), name_of(after))
        for after, previous in table.items()
        for before in sorted(previous, key=name_of)
        if before is not after
    ]


def name_of(state: Enum) -> str:
    """As Kafka prints it."""
    return state.value if isinstance(state.value, str) else state.name


def picture(title: str, table: Table) -> str:
    """The SVG."""
    names = [name_of(state) for state in table]
    places = {name: _place(index, len(names)) for index, name in enumerate(names)}
    widths = {name: 9 * len(name) + 24 for name in names}
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">',
        f"<title>{title}</title>",
        '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#5566aa"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for before, after in arrows(table):
        start, end = places[before], places[after]
        middle = _bent(start, end)
        x1, y1 = _border(start, middle, widths[before])
        x2, y2 = _border(end, middle, widths[after])
        lines.append(
            f'<path d="M{x1:.0f} {y1:.0f} Q{middle[0]:.0f} {middle[1]:.0f} {x2:.0f} {y2:.0f}" fill="none" '
            f'stroke="#5566aa" stroke-width="1.4" marker-end="url(#end)"><title>{before} to {after}</title></path>'
        )
    for name, (x, y) in places.items():
        width = widths[name]
        lines.append(
            f'<rect x="{x - width / 2:.0f}" y="{y - NODE_HEIGHT / 2:.0f}" width="{width}" height="{NODE_HEIGHT}" '
            'rx="8" fill="#eef1fb" stroke="#33407a"/>'
        )
        lines.append(
            f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle" font-family="monospace" font-size="14" '
            f'fill="#1b2347">{name}</text>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


Point = tuple[float, float]


def _place(index: int, count: int) -> Point:
    angle = 2 * math.pi * index / count - math.pi / 2
    return (
        WIDTH / 2 + (WIDTH / 2 - MARGIN - 90) * math.cos(angle),
        HEIGHT / 2 + (HEIGHT / 2 - MARGIN) * math.sin(angle),
    )


def _bent(start: Point, end: Point) -> Point:
    """The midpoint of an arrow, slightly to its left."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    return (start[0] + end[0]) / 2 + BEND * dy, (start[1] + end[1]) / 2 - BEND * dx


def _border(center: Point, toward: Point, width: float) -> Point:
    """The point where a line from the center of a state leaves its box."""
    dx, dy = toward[0] - center[0], toward[1] - center[1]
    scale = min(
        (width / 2 + 4) / abs(dx) if dx else math.inf,
        (NODE_HEIGHT / 2 + 4) / abs(dy) if dy else math.inf,
    )
    return center[0] + dx * scale, center[1] + dy * scale
