"""Groups with members whose assignments cannot be decoded, since a client did not write them in its protocol's format.

Answers name these groups: without a row of an owner there may still have been one.
"""

from collections.abc import Sequence

import pyarrow.compute as pc

from jobs.console.names import short, some_of
from jobs.queries.as_of import SilverAt
from schemas.tables.silver import GROUP_GENERATIONS, GROUP_MEMBERS


def unread_groups(silver: SilverAt, *conditions: pc.Expression, topic: str | None = None) -> list[str]:
    """Groups with such members in generations that satisfy the conditions, sorted; with `topic`, only groups that may
    have consumed it.
    """
    rows = silver.scan(GROUP_GENERATIONS, ("group_id", "unread_members"), *conditions)
    has_any = pc.greater(pc.fill_null(pc.list_value_length(rows["unread_members"]), 0), 0)
    group_ids: list[str] = pc.unique(rows.filter(has_any)["group_id"]).to_pylist()
    if group_ids and topic is not None:
        names = ("group_id", "subscribed_topics")
        members = silver.of_groups(group_ids).scan(GROUP_MEMBERS, names)
        may_read = (it for it in members.to_pylist() if it[names[1]] is None or topic in it[names[1]])
        group_ids = list({row["group_id"] for row in may_read})
    return sorted(group_ids)


def unread_text(group_ids: Sequence[str]) -> str:
    """A sentence: what is not known, and where to look."""
    named = some_of(repr(short(name)) for name in group_ids)
    groups = "group" if len(group_ids) == 1 else "groups"
    return (
        f"assignments of members of {groups} {named} cannot be read, so it is not known what these members owned: see "
        "gold.log_anomalies, category CLIENT"
    )
