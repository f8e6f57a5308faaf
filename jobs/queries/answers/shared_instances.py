"""Two processes with one group.instance.id: each that joins puts the other out (FENCED_INSTANCE_ID), which joins again.

A static member that was replaced, and whose place the one that it had replaced took back soon, again and again, was no
restart: those come back from where they were, or go elsewhere for good.
"""

from collections.abc import Iterator
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple

from coordinator_core.history.rows import REPLACED_STATIC
from coordinator_core.text import counted
from jobs.console.names import short
from jobs.console.output import time_text
from jobs.delta.replay_runs import WholeRun
from jobs.delta.times import epoch_ms
from schemas.tables.silver import GROUP_MEMBERS

STAY_MS_MAX: Final = 600_000
"""Clients that are put out join again at once, or are started again within minutes."""
REPLACED_MIN: Final = 3
"""There and back is a move that was undone; there again is none."""


class SharedInstance(NamedTuple):
    group_id: str
    instance_id: str
    places: tuple[str, ...]
    """Client id and host of each process."""
    since_ms: int
    until_ms: int
    replaced_count: int
    """How often one was put out."""

    @property
    def text(self) -> str:
        """In words."""
        return (
            f"{short(self.group_id)} ({short(self.instance_id)}: {' and '.join(map(short, self.places))}, "
            f"{counted(self.replaced_count, 'time')} since {time_text(self.since_ms)})"
        )


def shared_instances(run: WholeRun, since_ms: int = 0) -> list[SharedInstance]:
    """Instance ids of several processes that put each other out since a time, by group."""
    columns = ["group_id", "instance_id", "client_id", "client_host", "from_log_offset", "valid_from", "valid_to"]
    rows = run.read(GROUP_MEMBERS, columns, ended_by=REPLACED_STATIC).to_pylist()
    of_instance = itemgetter("group_id", "instance_id")
    timed = [row for row in rows if row["instance_id"] and row["valid_from"] and row["valid_to"]]
    timed.sort(key=lambda row: (*of_instance(row), row["from_log_offset"]))
    return [
        SharedInstance(
            group_id, instance_id, places, epoch_ms(war[0]["valid_to"]), epoch_ms(war[-1]["valid_to"]), len(war)
        )
        for (group_id, instance_id), same in groupby(timed, of_instance)
        for war in _wars(same)
        if len(places := tuple(dict.fromkeys(map(_place, war)))) > 1 and epoch_ms(war[-1]["valid_to"]) >= since_ms
    ]


def _place(row: dict[str, Any]) -> str:
    return f"{row['client_id']} on {row['client_host']}"


def _wars(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Stays of one instance id that ended soon, one after the other, if any process came back to it."""
    war: list[dict[str, Any]] = []
    for row in [*rows, None]:
        is_next = row is not None and (not war or epoch_ms(row["valid_from"]) - epoch_ms(war[-1]["valid_to"]) == 0)
        is_short = row is not None and epoch_ms(row["valid_to"]) - epoch_ms(row["valid_from"]) <= STAY_MS_MAX
        if row is not None and is_next and (is_short or not war):
            war.append(row)
            continue
        changes = sum(_place(one) != _place(other) for one, other in pairwise(war))
        if len(war) >= REPLACED_MIN and changes >= REPLACED_MIN - 1 and len(set(map(_place, war))) < len(war):
            yield war
        war = [] if row is None else [row]
