"""Pictures of share groups: delivery states of offsets over time, redeliveries, archived records."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.log.chunk import I64
from jobs.delta.arrow_columns import codes_of, epoch_ms_column, indices_in, numbers_of
from jobs.queries.answers.audit_report import Hole
from jobs.queries.answers.lists import WITHOUT_COPY
from jobs.report.cluster import GroupLine
from jobs.report.condense import Condensed, DeliveryStates, Flow, Marks, delivery_states, deltas, marks
from jobs.report.groups import MEMBERS, SHORTER, holes_of_group, member_flow, members_picture, together_text
from jobs.report.pictures import Column, Kind, Listed, Listing, Picture, columns_of
from jobs.report.reader import Limits, Reader, by_group, shared_out
from jobs.report.sql_text import Scope, select
from schemas.tables.declare import Table
from schemas.tables.gold import ARCHIVED_RECORDS, REDELIVERIES
from schemas.tables.silver import GROUP_MEMBERS, SHARE_BATCH_TRANSITIONS, SHARE_PARTITION_STATES, SHARE_STATE_BATCHES

DELIVERY_STATES: Final = ("AVAILABLE", "ACKNOWLEDGED", "ARCHIVING", "ARCHIVED")
"""The states in the log; ACQUIRED is never written."""
GIVEN_UP: Final = ("ARCHIVING", "ARCHIVED")
"""A record that is copied to a dead-letter topic is ARCHIVING first: it counts as archived from then on."""
ENDS: Final = ("ACKNOWLEDGED", *GIVEN_UP)

TOPIC: Final = Column("topic", Kind.TEXT, "coalesce(topic, topic_id)")

BATCHES: Final = Listed(
    "Delivery states",
    SHARE_STATE_BATCHES,
    (
        TOPIC,
        *columns_of(
            SHARE_STATE_BATCHES,
            "partition first_offset last_offset delivery_state delivery_count valid_from valid_to is_complete",
        ),
    ),
    ("valid_from", "topic_id", "partition", "first_offset", "from_log_offset"),
)
STARTS: Final = Listed(
    "Start offset, record by record",
    SHARE_PARTITION_STATES,
    (
        TOPIC,
        *columns_of(
            SHARE_PARTITION_STATES,
            "partition valid_from start_offset effective_start_offset available_count acknowledged_count "
            "archived_count leader_epoch record_kind is_complete",
        ),
    ),
    ("valid_from", "topic_id", "partition", "log_offset"),
)


def _events(title: str, table: Table, names: str) -> Listed:
    columns = (*columns_of(table, "at"), TOPIC, *columns_of(table, names))
    return Listed(title, table, columns, ("at", "topic_id", "partition", "log_offset", "first_offset"))


REDELIVERED: Final = _events(
    "Handed back or given out again",
    REDELIVERIES,
    "partition first_offset last_offset from_delivery_count to_delivery_count cause likely_cause method "
    "confidence leader_changed",
)
ARCHIVED: Final = _events(
    "Given up",
    ARCHIVED_RECORDS,
    "partition first_offset last_offset delivery_count delivery_count_limit cause likely_cause method "
    "confidence dead_letter",
)
ARCHIVED_WITHOUT_COPY: Final = ARCHIVED._replace(title="Archived without a copy")
WITHOUT_COPY_CONDITION: Final = f"dead_letter in ({', '.join(map(repr, WITHOUT_COPY))})"
EVENT_TEXTS: Final = ("cause", "likely_cause", "confidence", "method", "topic")
ARCHIVED_WEIGHT: Final = 1_000
"""An archived range makes a share partition as interesting as this many records of its state."""


@dataclass(frozen=True, slots=True)
class SharePartitionFacts:
    """What is drawn of one share partition."""

    name: str
    states: Condensed[DeliveryStates]
    steps: tuple[I64, I64, I64]
    """Times at which the start offset moved (epoch ms), start offsets, and their lower bounds."""


@dataclass(frozen=True, slots=True)
class ShareGroupFacts:
    """The facts of one share group in full detail."""

    line: GroupLine
    states: Listing
    starts: Listing
    partitions: list[SharePartitionFacts]
    """The most interesting ones first."""
    partition_count: int
    redelivered: Listing
    archived: Listing
    without_copy: Listing
    redelivered_marks: Condensed[Marks]
    archived_marks: Condensed[Marks]
    counts: Listing
    members: Listing
    flow: Condensed[Flow]
    times: tuple[I64, ...]
    """Times of everything drawn (epoch ms)."""


def read_share_groups(reader: Reader, lines: Sequence[GroupLine], limits: Limits) -> list[ShareGroupFacts]:
    """The facts of share groups; each table is read once for all of them."""
    group_ids = [line.group_id for line in lines]
    if not group_ids:
        return []
    reader = reader.of_groups(group_ids)
    batches = by_group(_named(reader.intervals(SHARE_STATE_BATCHES, BATCHES.names("topic"))), group_ids)
    states = by_group(_named(reader.intervals(SHARE_PARTITION_STATES, STARTS.names("topic"))), group_ids)
    redelivered, archived = (
        by_group(_named(reader.moments(listed.table, listed.names("topic"), "at")), group_ids)
        for listed in (REDELIVERED, ARCHIVED)
    )
    names = ("group_id", "first_offset", "last_offset", "from_state", "to_delivery_count", "kind")
    from_state = pc.field("from_state")
    is_end = pc.field("kind").isin(pa.array(ENDS)) & (from_state.is_null() | (from_state != "ARCHIVING"))
    transitions = by_group(reader.moments(SHARE_BATCH_TRANSITIONS, names, "at", is_end), group_ids)
    members = by_group(reader.intervals(GROUP_MEMBERS, MEMBERS.names()), group_ids)
    found = []
    for line in lines:
        own, scope = line.group_id, reader.scope.of_group(line.group_id)
        places = _places(batches[own]) + _places(states[own])
        for place, count in _places(archived[own]).items():
            places[place] += ARCHIVED_WEIGHT * count
        found.append(
            ShareGroupFacts(
                line,
                BATCHES.listing(batches[own], scope, limits.row_count),
                STARTS.listing(states[own], scope, limits.row_count),
                [
                    _share_partition(place, batches[own], states[own])
                    for place in sorted(places, key=lambda place: (-places[place], place))[
                        : limits.share_partition_count
                    ]
                ],
                len(places),
                REDELIVERED.listing(redelivered[own], scope, limits.row_count),
                ARCHIVED.listing(archived[own], scope, limits.row_count),
                ARCHIVED_WITHOUT_COPY.listing(
                    _without_copy(archived[own]), scope, limits.row_count, WITHOUT_COPY_CONDITION
                ),
                Condensed(marks(redelivered[own], "at", EVENT_TEXTS, ("partition",))),
                Condensed(marks(archived[own], "at", EVENT_TEXTS, ("partition",))),
                _count_listing(transitions[own], scope),
                MEMBERS.listing(members[own], scope, limits.row_count),
                member_flow(members[own]),
                tuple(
                    times[times >= 0]
                    for rows, names in (
                        (batches[own], ("valid_from", "valid_to")),
                        (states[own], ("valid_from",)),
                        (redelivered[own], ("at",)),
                        (archived[own], ("at",)),
                        (members[own], ("valid_from", "valid_to")),
                    )
                    for times in (epoch_ms_column(rows[name]) for name in names)
                ),
            )
        )
    return found


def share_pictures(
    groups: Sequence[ShareGroupFacts], holes: Sequence[Hole], limits: Limits
) -> dict[str, list[Picture]]:
    partitions = [partition for group in groups for partition in group.partitions[: limits.share_partition_count]]
    batch_counts = shared_out(limits.batch_count, [partition.states.whole_count for partition in partitions])
    states_max = dict(zip(map(id, partitions), batch_counts, strict=True))
    mark_counts = [
        shared_out(limits.mark_count, [condensed.whole_count for condensed in found])
        for found in (
            [group.redelivered_marks for group in groups],
            [group.archived_marks for group in groups],
            [group.flow for group in groups],
        )
    ]
    pictures = {}
    for index, group in enumerate(groups):
        own, own_holes = f"s{index}", holes_of_group(group.line, holes)
        redelivered_max, archived_max, flow_max = (counts[index] for counts in mark_counts)
        shown = group.partitions[: limits.share_partition_count]
        found = (
            _states_picture(own, group, [(it, states_max[id(it)]) for it in shown], own_holes, limits),
            _events_picture(own, group, own_holes, limits, redelivered_max, archived_max),
            _counts_picture(own, group),
            members_picture(own, group.members, group.flow, own_holes, limits, flow_max),
        )
        pictures[group.line.group_id] = [picture for picture in found if picture.has_rows]
    return pictures


def _states_picture(
    own: str,
    group: ShareGroupFacts,
    partitions: Sequence[tuple[SharePartitionFacts, int]],
    holes: list[dict[str, Any]],
    limits: Limits,
) -> Picture:
    """Offsets over time with their delivery states, and the start offset. `partitions`: share partitions, each with
    its maximum number of intervals."""
    drawn = [_partition_json(partition, intervals_max) for partition, intervals_max in partitions]
    remarks = ["A delivery that is under way (ACQUIRED) is in no log: only what became of it is."]
    if group.partition_count > len(drawn):
        remarks.append(f"The {len(drawn)} busiest of {group.partition_count:,} share partitions are drawn.")
    joined = [partition for partition, _ in partitions if partition.states.step]
    if joined:
        whole_count = sum(partition.states.whole_count for partition in joined)
        remarks.append(
            f"Of {len(joined)} of them there are {whole_count:,} intervals of delivery states: those of one state that "
            f"lie close together, in time and by offset, are drawn as one. {SHORTER}"
        )
    return Picture(
        f"{own}-states",
        "drawStates",
        "Delivery state of each offset",
        "Time goes to the right, offsets go up. The line is the start offset: what is below it is done with.",
        (group.states.cut(limits.row_count), group.starts.cut(limits.row_count)),
        {"partitions": drawn, "states": DELIVERY_STATES, "holes": holes},
        tuple(remarks),
        490,
    )


def _share_partition(place: tuple[str, int], batches: pa.Table, states: pa.Table) -> SharePartitionFacts:
    rows, steps = _in(batches, place), _in(states, place)
    columns = (
        numbers_of(rows["first_offset"]),
        numbers_of(rows["last_offset"]),
        indices_in(rows["delivery_state"], DELIVERY_STATES).astype(np.int64),
        numbers_of(rows["delivery_count"]),
        epoch_ms_column(rows["valid_from"]),
        epoch_ms_column(rows["valid_to"]),
        numbers_of(rows["is_complete"].cast(pa.int8())),
    )
    by_offset = np.argsort(numbers_of(steps["log_offset"]), kind="stable")
    starts, least = (numbers_of(steps[name])[by_offset] for name in ("start_offset", "effective_start_offset"))
    is_step = np.ones(len(by_offset), np.bool_)
    is_step[1:] = (np.diff(starts) != 0) | (np.diff(least) != 0)
    moments = epoch_ms_column(steps["valid_from"])[by_offset]
    return SharePartitionFacts(
        f"{place[0]}-{place[1]}",
        Condensed(delivery_states(columns)),
        (moments[is_step], starts[is_step], least[is_step]),
    )


def _partition_json(partition: SharePartitionFacts, intervals_max: int) -> dict[str, Any]:
    """One share partition in the page's form. If the start offset has too many steps, some are left out."""
    moments, starts, least = partition.steps
    steps_max = min(len(moments), max(intervals_max, 2))
    shown = np.linspace(0, len(moments) - 1, steps_max).astype(np.int64) if len(moments) else moments
    return {
        "name": partition.name,
        **partition.states.at_most(intervals_max).json(),
        "stepTimes": deltas(moments[shown]),
        "stepStarts": deltas(starts[shown]),
        "stepEffective": deltas(least[shown]),
    }


def _events_picture(
    own: str,
    group: ShareGroupFacts,
    holes: list[dict[str, Any]],
    limits: Limits,
    redelivered_max: int,
    archived_max: int,
) -> Picture:
    """Released, redelivered and archived records, by cause."""
    redelivered, archived = group.redelivered_marks.at_most(redelivered_max), group.archived_marks.at_most(archived_max)
    remarks = [
        together_text(what, condensed)
        for what, condensed in (
            ("ranges of offsets that were handed back or given out again", group.redelivered_marks),
            ("ranges of offsets that were given up", group.archived_marks),
        )
        if condensed.step
    ]
    without_copy = [group.without_copy.cut(limits.row_count)] if group.without_copy.row_count else []
    return Picture(
        f"{own}-events",
        "drawEvents",
        "Redelivered and given up",
        "Each range of offsets that was handed back, given out again or given up, by its cause; larger marks are "
        "longer ranges.",
        (group.archived.cut(limits.row_count), *without_copy, group.redelivered.cut(limits.row_count)),
        {"redelivered": redelivered.json(), "archived": archived.json(), "holes": holes},
        tuple(remarks),
        max(len(set(redelivered.kind_columns["cause"])) + len(set(archived.kind_columns["cause"])), 1) * 30 + 80,
    )


def _counts_picture(own: str, group: ShareGroupFacts) -> Picture:
    """Number of deliveries until records were acknowledged or archived. A single row gets no chart."""
    return Picture(
        f"{own}-counts",
        "drawCounts" if group.counts.row_count > 1 else "",
        "Deliveries until the end",
        "Offsets by the delivery count at which they were acknowledged or given up.",
        (group.counts,),
    )


def _without_copy(archived: pa.Table) -> pa.Table:
    """Records archived in a group with a dead-letter topic, but not copied there."""
    return archived.filter(pc.is_in(archived["dead_letter"].cast(pa.string()), pa.array(WITHOUT_COPY)))


def _count_listing(transitions: pa.Table, scope: Scope) -> Listing:
    columns = (
        Column("delivery_count", Kind.NUMBER, "to_delivery_count"),
        Column("acknowledged", Kind.NUMBER, _offsets_if("ACKNOWLEDGED")),
        Column("archived", Kind.NUMBER, _offsets_if(*GIVEN_UP)),
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
        (count, *(sum(counts[count].get(kind, 0) for kind in kinds) for kinds in (("ACKNOWLEDGED",), GIVEN_UP)))
        for count in sorted(counts, key=lambda count: (count is not None, count))
    ]
    conditions = [*scope.within("at"), _is_one_of(ENDS), "coalesce(from_state, '') <> 'ARCHIVING'"]
    sql = select(
        [it.sql for it in columns],
        SHARE_BATCH_TRANSITIONS.full_name,
        conditions,
        ("delivery_count",),
        group_by="to_delivery_count",
    )
    return Listing("Delivery counts", columns, rows, len(rows), sql)


def _is_one_of(kinds: Sequence[str]) -> str:
    return f"kind in ({', '.join(map(repr, kinds))})"


def _offsets_if(*kinds: str) -> str:
    return f"coalesce(sum(case when {_is_one_of(kinds)} then last_offset - first_offset + 1 end), 0)"


def _named(rows: pa.Table) -> pa.Table:
    """Use the topic id where the name is not known."""
    if not rows["topic"].null_count:
        return rows
    names = (rows[name].cast(pa.string()) for name in ("topic", "topic_id"))
    return rows.set_column(rows.schema.get_field_index("topic"), "topic", pc.coalesce(*names).dictionary_encode())


def _places(rows: pa.Table) -> Counter[tuple[str, int]]:
    """Share partitions and their number of rows."""
    counts = rows.group_by(["topic", "partition"]).aggregate([([], "count_all")])
    places = zip(counts["topic"].to_pylist(), counts["partition"].to_pylist(), strict=True)
    return Counter(dict(zip(places, counts["count_all"].to_pylist(), strict=True)))


def _in(rows: pa.Table, place: tuple[str, int]) -> pa.Table:
    codes, topics = codes_of(rows["topic"])
    code = topics.index(place[0]) if place[0] in topics else len(topics)
    return rows.filter(pa.array((codes == code) & (numbers_of(rows["partition"]) == place[1])))
