"""Share groups: what state each offset was in and when, what was given out again, what was given up."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.arrow_columns import codes_of, epoch_ms_column, indices_in, numbers_of
from jobs.audit_report import Hole
from jobs.report.cluster import GroupLine, hole_json
from jobs.report.groups import MEMBER_COLUMNS, OPEN, members_picture
from jobs.report.pictures import Column, Kind, Listing, Picture, cells, deltas, listing
from jobs.report.reader import Limits, Reader
from jobs.report.sql_text import Scope, select
from schemas.tables.gold import ARCHIVED_RECORDS, REDELIVERIES
from schemas.tables.silver import (
    GROUP_MEMBERS,
    SHARE_BATCH_TRANSITIONS,
    SHARE_PARTITION_STATES,
    SHARE_STATE_BATCHES,
)

DELIVERY_STATES: Final = ("AVAILABLE", "ACKNOWLEDGED", "ARCHIVING", "ARCHIVED")
"""As the log holds them; ACQUIRED is never written."""
ENDS: Final = ("ACKNOWLEDGED", "ARCHIVED")

TOPIC: Final = Column("topic", Kind.TEXT, "coalesce(topic, topic_id)")
PARTITION: Final = Column("partition", Kind.NUMBER)
FIRST: Final = Column("first_offset", Kind.NUMBER)
LAST: Final = Column("last_offset", Kind.NUMBER)
METHOD: Final = Column("method", Kind.TEXT)
CONFIDENCE: Final = Column("confidence", Kind.TEXT)

BATCH_COLUMNS: Final = (
    TOPIC,
    PARTITION,
    FIRST,
    LAST,
    Column("delivery_state", Kind.TEXT),
    Column("delivery_count", Kind.NUMBER),
    Column("valid_from", Kind.TIME),
    Column("valid_to", Kind.TIME),
    Column("is_complete", Kind.FLAG),
)
BATCH_ORDER: Final = ("valid_from", "topic_id", "partition", "first_offset", "from_log_offset")

REDELIVERY_COLUMNS: Final = (
    Column("at", Kind.TIME),
    TOPIC,
    PARTITION,
    FIRST,
    LAST,
    Column("from_delivery_count", Kind.NUMBER),
    Column("to_delivery_count", Kind.NUMBER),
    Column("cause", Kind.TEXT),
    Column("likely_cause", Kind.TEXT),
    METHOD,
    CONFIDENCE,
    Column("leader_changed", Kind.FLAG),
)
ARCHIVED_COLUMNS: Final = (
    Column("at", Kind.TIME),
    TOPIC,
    PARTITION,
    FIRST,
    LAST,
    Column("delivery_count", Kind.NUMBER),
    Column("delivery_count_limit", Kind.NUMBER),
    Column("cause", Kind.TEXT),
    Column("likely_cause", Kind.TEXT),
    METHOD,
    CONFIDENCE,
)
EVENT_ORDER: Final = ("at", "topic_id", "partition", "log_offset", "first_offset")

START_COLUMNS: Final = (
    TOPIC,
    PARTITION,
    Column("valid_from", Kind.TIME),
    Column("start_offset", Kind.NUMBER),
    Column("effective_start_offset", Kind.NUMBER),
    Column("available_count", Kind.NUMBER),
    Column("acknowledged_count", Kind.NUMBER),
    Column("archived_count", Kind.NUMBER),
    Column("leader_epoch", Kind.NUMBER),
    Column("record_kind", Kind.TEXT),
    Column("is_complete", Kind.FLAG),
)
START_ORDER: Final = ("topic_id", "partition", "log_offset")


def share_pictures(
    reader: Reader, lines: Sequence[GroupLine], holes: Sequence[Hole], limits: Limits
) -> dict[str, list[Picture]]:
    """Pictures of share groups, by group id."""
    if not lines:
        return {}
    reader = reader.of_groups([line.group_id for line in lines])
    batches = _named(reader.stretches(SHARE_STATE_BATCHES, _names(BATCH_COLUMNS, BATCH_ORDER)))
    states = _named(reader.stretches(SHARE_PARTITION_STATES, _names(START_COLUMNS, (*START_ORDER, "log_partition"))))
    redeliveries = _named(reader.moments(REDELIVERIES, _names(REDELIVERY_COLUMNS, EVENT_ORDER), "at"))
    archived = _named(reader.moments(ARCHIVED_RECORDS, _names(ARCHIVED_COLUMNS, EVENT_ORDER), "at"))
    transitions = reader.moments(
        SHARE_BATCH_TRANSITIONS,
        ("group_id", "first_offset", "last_offset", "to_state", "to_delivery_count", "kind"),
        "at",
        pc.field("kind").isin(pa.array(ENDS)),
    )
    members = reader.stretches(GROUP_MEMBERS, _names(MEMBER_COLUMNS, ("from_log_offset",)))
    pictures = {}
    for index, line in enumerate(lines):
        own, scope = f"s{index}", reader.scope.of_group(line.group_id)
        logs = {f"{topic}-{partition}" for topic, partition in line.log_partitions}
        own_holes = [hole_json(hole) for hole in holes if hole.log_partition in logs]
        of = [_of(rows, line.group_id) for rows in (batches, states, redeliveries, archived, transitions, members)]
        starts = _starts_listing(of[1], scope, limits)
        found = [
            _states_picture(own, of[0], of[1], of[3], starts, scope, limits, len(lines)),
            _events_picture(own, of[2], of[3], scope, limits),
            _counts_picture(own, of[4], scope),
            members_picture(own, of[5], scope, limits),
        ]
        for picture in found:
            if "holes" in picture.data:
                picture.data["holes"].extend(own_holes)
        pictures[line.group_id] = [picture for picture in found if any(it.row_count for it in picture.listings)]
    return pictures


def _states_picture(
    own: str,
    batches: pa.Table,
    states: pa.Table,
    archived: pa.Table,
    starts: Listing,
    scope: Scope,
    limits: Limits,
    group_count: int,
) -> Picture:
    """Offsets by time, with their delivery states; the start offset over them."""
    table = listing(
        "Delivery states",
        SHARE_STATE_BATCHES,
        BATCH_COLUMNS,
        batches,
        scope.overlapping(),
        BATCH_ORDER,
        limits.row_count,
    )
    places = Counter(_places(states)) + Counter(_places(batches))
    for place, count in Counter(_places(archived)).items():
        places[place] += 1_000 * count
    shown = [place for place, _ in places.most_common(limits.share_partition_count)]
    rows_max = limits.batch_count // group_count // max(len(shown), 1)
    partitions = [_partition_json(place, batches, states, rows_max) for place in shown]
    remarks = ["A delivery that is under way (ACQUIRED) is in no log: only what became of it is."]
    if len(places) > len(shown):
        remarks.append(f"The {len(shown)} busiest of {len(places):,} share partitions are drawn; the table has all.")
    if any(partition["left"] for partition in partitions):
        remarks.append(
            "Of some partitions only the first stretches are drawn: a report of a shorter time (--from, --to) "
            "draws all."
        )
    return Picture(
        f"{own}-states",
        "drawStates",
        "Delivery state of each offset",
        "Time goes to the right, offsets go up. The line is the start offset: what is below it is done with.",
        (table, starts),
        {"partitions": partitions, "states": DELIVERY_STATES, "holes": []},
        tuple(remarks),
    )


def _partition_json(place: tuple[str, int], batches: pa.Table, states: pa.Table, rows_max: int) -> dict[str, Any]:
    """Stretches of one share partition in parallel lists: `firsts`, `lasts` (offsets), `states`, `counts`, `starts`,
    `lengths` (ms), `sure` (0 where it began midway); and the start offset's steps. `left`: stretches left out."""
    own = _in(batches, place)
    order = np.lexsort([numbers_of(own["first_offset"]), epoch_ms_column(own["valid_from"])])[:rows_max]
    starts, ends = epoch_ms_column(own["valid_from"])[order], epoch_ms_column(own["valid_to"])[order]
    steps = _in(states, place)
    by_time = np.argsort(numbers_of(steps["log_offset"]), kind="stable")
    start_offsets = numbers_of(steps["start_offset"])[by_time]
    effective = numbers_of(steps["effective_start_offset"])[by_time]
    is_step = np.ones(len(by_time), np.bool_)
    is_step[1:] = (np.diff(start_offsets) != 0) | (np.diff(effective) != 0)
    chosen = np.flatnonzero(is_step)[:rows_max]
    return {
        "name": f"{place[0]}-{place[1]}",
        "firsts": deltas(numbers_of(own["first_offset"])[order].tolist()),
        "lasts": deltas(numbers_of(own["last_offset"])[order].tolist()),
        "states": indices_in(own["delivery_state"], DELIVERY_STATES)[order].tolist(),
        "counts": numbers_of(own["delivery_count"])[order].tolist(),
        "starts": deltas(starts.tolist()),
        "lengths": np.where(ends == OPEN, OPEN, ends - starts).tolist(),
        "sure": np.asarray(cells(own["is_complete"]), np.int64)[order].tolist() if own.num_rows else [],
        "stepTimes": deltas(epoch_ms_column(steps["valid_from"])[by_time][chosen].tolist()),
        "stepStarts": deltas(start_offsets[chosen].tolist()),
        "stepEffective": deltas(effective[chosen].tolist()),
        "left": own.num_rows - len(order),
    }


def _starts_listing(states: pa.Table, scope: Scope, limits: Limits) -> Listing:
    return listing(
        "Start offset, record by record",
        SHARE_PARTITION_STATES,
        START_COLUMNS,
        states,
        scope.overlapping(),
        START_ORDER,
        limits.row_count,
    )


def _events_picture(own: str, redeliveries: pa.Table, archived: pa.Table, scope: Scope, limits: Limits) -> Picture:
    """What was handed back, given out again or given up, by its cause."""
    again = listing(
        "Handed back or given out again",
        REDELIVERIES,
        REDELIVERY_COLUMNS,
        redeliveries,
        scope.within("at"),
        EVENT_ORDER,
        limits.row_count,
    )
    gone = listing(
        "Given up", ARCHIVED_RECORDS, ARCHIVED_COLUMNS, archived, scope.within("at"), EVENT_ORDER, limits.row_count
    )
    return Picture(
        f"{own}-events",
        "drawEvents",
        "Redelivered and given up",
        "Each range of offsets that was handed back, given out again or given up, by its cause; larger marks are "
        "longer ranges.",
        (gone, again),
        {
            "redelivered": _events_json(redeliveries, limits.rebalance_count),
            "archived": _events_json(archived, limits.rebalance_count),
            "holes": [],
        },
    )


def _events_json(rows: pa.Table, rows_max: int) -> dict[str, Any]:
    """The first rows in the order of time: times (as `deltas`), offsets, and texts by number."""
    at_ms = epoch_ms_column(rows["at"])
    order = np.argsort(at_ms, kind="stable")[:rows_max]
    found: dict[str, Any] = {
        "at": deltas(at_ms[order].tolist()),
        "offsets": (numbers_of(rows["last_offset"]) - numbers_of(rows["first_offset"]) + 1)[order].tolist(),
        "firsts": numbers_of(rows["first_offset"])[order].tolist(),
        "partitions": numbers_of(rows["partition"])[order].tolist(),
    }
    for name in ("topic", "cause", "likely_cause", "confidence", "method"):
        codes, texts = codes_of(rows[name])
        found[name] = {"texts": texts, "codes": codes[order].tolist()}
    return found


def _counts_picture(own: str, transitions: pa.Table, scope: Scope) -> Picture:
    """How many deliveries records took until they were acknowledged or given up."""
    columns = (
        Column("delivery_count", Kind.NUMBER, "to_delivery_count"),
        Column("acknowledged", Kind.NUMBER, _offsets_if("ACKNOWLEDGED")),
        Column("archived", Kind.NUMBER, _offsets_if("ARCHIVED")),
    )
    offsets = pc.add(pc.subtract(transitions["last_offset"], transitions["first_offset"]), 1)
    sums = (
        transitions.append_column("offsets", offsets)
        .group_by(["to_delivery_count", "kind"])
        .aggregate([("offsets", "sum")])
    )
    counts: dict[Any, dict[str, int]] = {}
    for row in sums.to_pylist():
        counts.setdefault(row["to_delivery_count"], {})[row["kind"]] = row["offsets_sum"]
    rows: list[tuple[Any, ...]] = [
        (count, *(counts[count].get(kind, 0) for kind in ENDS))
        for count in sorted(counts, key=lambda count: (count is not None, count))
    ]
    conditions = [*scope.within("at"), f"kind in ({', '.join(repr(kind) for kind in ENDS)})"]
    sql = select([it.sql for it in columns], SHARE_BATCH_TRANSITIONS.full_name, conditions, ("delivery_count",))
    sql = sql.replace("\norder by", "\ngroup by to_delivery_count\norder by")
    return Picture(
        f"{own}-counts",
        "drawCounts",
        "Deliveries until the end",
        "Offsets by the delivery count at which they were acknowledged or given up.",
        (Listing("Delivery counts", columns, rows, len(rows), sql),),
    )


def _offsets_if(kind: str) -> str:
    return f"coalesce(sum(case when kind = '{kind}' then last_offset - first_offset + 1 end), 0)"


def _names(columns: Sequence[Column], more: Sequence[str]) -> list[str]:
    return list(
        dict.fromkeys((*(column.name for column in columns), *more, "topic_id", "group_id"))
        if columns is not MEMBER_COLUMNS
        else dict.fromkeys((*(c.name for c in columns), *more, "group_id"))
    )


def _named(rows: pa.Table) -> pa.Table:
    """With the topic's id where no name is known."""
    index = rows.schema.get_field_index("topic")
    return rows.set_column(index, "topic", pc.coalesce(rows["topic"], rows["topic_id"]))


def _places(rows: pa.Table) -> list[tuple[str, int]]:
    return list(zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True))


def _in(rows: pa.Table, place: tuple[str, int]) -> pa.Table:
    is_topic, is_partition = pc.equal(rows["topic"], pa.scalar(place[0])), pc.equal(rows["partition"], place[1])
    return rows.filter(pc.and_(is_topic, is_partition))


def _of(rows: pa.Table, group_id: str) -> pa.Table:
    return rows.filter(pc.equal(rows["group_id"], pa.scalar(group_id)))
