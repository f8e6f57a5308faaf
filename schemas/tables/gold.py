"""Gold: answers inferred from silver."""

from functools import partial

from schemas.tables.common import (
    CLIENT_HOST,
    CLIENT_ID,
    CLUSTER_ID,
    FROM_GENERATION,
    FROM_LOG_OFFSET,
    GROUP_ID,
    GROUP_TYPE,
    INCARNATION,
    INSTANCE_ID,
    IS_FORMER_LOG_PARTITION,
    IS_FORMER_SHARE_LOG_PARTITION,
    IS_SETTLED,
    LOG_PARTITION,
    MEMBER_ID,
    TO_GENERATION,
    TO_LOG_OFFSET,
    TOPIC_OF_ID,
    VALID_FROM,
    VALID_TO,
    as_key,
    key,
)
from schemas.tables.declare import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, ArrayOf, Column, Table

BY_DAY = ("cluster_id", "day")
"""`partition_by` of gold: a night replaces files of the days in which it changes rows, and old days can be dropped."""
gold_table = partial(Table, "gold", partition_by=BY_DAY)

GROUP_COLUMNS = (CLUSTER_ID, GROUP_ID, GROUP_TYPE)
METHOD = Column("method", STRING, "The rule that infers it.")
CONFIDENCE = Column("confidence", STRING, "CERTAIN LIKELY GUESS.")
AT = Column("at", TIMESTAMP, "When it happened.")
LOG_OFFSET = key("log_offset", BIGINT, "Offset of the coordinator record.")
TOPIC_ID = key("topic_id", STRING, "Topic id; null if it is not in the log.")
PARTITION = key("partition", INT, "Partition of the topic.")
FIRST_OFFSET = key("first_offset", BIGINT, "First offset of the range.")
LAST_OFFSET = Column("last_offset", BIGINT, "Last offset of the range, inclusive.")
DAY_OF_END = Column("day", DATE, "UTC day of the end; null while open.")
DAY_OF_IT = Column("day", DATE, "UTC day of `at`.")
DAY = key("day", DATE, "The day, in UTC.")

PARTITION_OWNERS = gold_table(
    name="partition_owners",
    comment="Who owned what, when. If records of the group are missing within an interval, another member may have "
    "owned the partition meanwhile: in generations that are missing (silver.group_generations.is_contiguous), or, "
    "where bronze.coverage has a hole, a static member under an id that the log does not show, or anybody after the "
    "last generation that the log shows.",
    day_of="valid_to",
    columns=(
        *GROUP_COLUMNS,
        key("topic", STRING, "The topic."),
        TOPIC_ID,
        PARTITION,
        as_key(FROM_LOG_OFFSET),
        MEMBER_ID,
        INSTANCE_ID,
        CLIENT_ID,
        CLIENT_HOST,
        FROM_GENERATION,
        TO_GENERATION,
        TO_LOG_OFFSET,
        VALID_FROM,
        VALID_TO,
        Column("gap_before_ms", BIGINT, "Time without an owner before this interval, in ms; null where none is known."),
        Column(
            "is_double", BOOLEAN, "Another member also owned it for a time; no log that Kafka itself writes shows this."
        ),
        Column(
            "gap_cause",
            STRING,
            "Why there was no owner before: NOT_ASSIGNED (the previous owner went, or a new assignment removed "
            "the partition from it), REVOKED_IN_EPOCH (it revoked the partition without a new epoch, because it "
            "no longer subscribed to the topic); null without a gap.",
        ),
        Column(
            "unowned_partition_ms",
            BIGINT,
            "Time without an owner while the group had members, in ms: in the gap before this interval, and in "
            "sync phases of eager rebalances within it.",
        ),
        LOG_PARTITION,
        IS_FORMER_LOG_PARTITION,
        DAY_OF_END,
    ),
)

REBALANCES = gold_table(
    name="rebalances",
    comment="One row per rebalance: its cause, its duration, and what moved.",
    day_of="completed_at",
    columns=(
        *GROUP_COLUMNS,
        key("to_generation", INT, "Generation or group epoch after the rebalance."),
        as_key(INCARNATION),
        Column("from_generation", INT, "Generation or group epoch before the rebalance."),
        Column(
            "started_at",
            TIMESTAMP,
            "When it began. Classic: the end of the join phase, because its beginning is not in the log.",
        ),
        Column(
            "completed_at",
            TIMESTAMP,
            "When all members had reached the generation or group epoch; null while it is in progress.",
        ),
        Column("duration_ms", BIGINT, "completed_at minus started_at, in ms."),
        Column("cause", STRING, "The main cause."),
        Column("causes", ArrayOf(STRING), "All causes, the main one first."),
        METHOD,
        CONFIDENCE,
        Column("members_joined", ArrayOf(STRING), "Members that joined.", is_personal=True),
        Column("members_left", ArrayOf(STRING), "Members that went.", is_personal=True),
        Column(
            "member_count",
            INT,
            "Number of members after it that the log shows. Behind a missing part of the log a group that is not "
            "CLASSIC may have more, whose records are in what is missing, or fewer, whose tombstones are.",
        ),
        Column("partitions_total", INT, "Partitions assigned after it; null if an assignment cannot be read."),
        Column("partitions_moved", INT, "Partitions that changed owner; null if an assignment cannot be read."),
        Column("stickiness", DOUBLE, "Share of the partitions that stayed with their owner, 0 to 1."),
        Column(
            "unowned_partition_ms",
            BIGINT,
            "Sum over partitions of the time without an owner until the next rebalance that the log shows, in ms: "
            "the least, without the join phases of classic groups. Null if started_at is null.",
        ),
        Column(
            "revoked_partition_ms",
            BIGINT,
            "The part of unowned_partition_ms that no rebalance caused: a member no longer subscribed to a "
            "topic, and lost its partitions without a new epoch (partition_owners.gap_cause REVOKED_IN_EPOCH).",
        ),
        Column(
            "in_storm", BOOLEAN, "Part of a storm: many rebalances in which members flap, expire, or only join again."
        ),
        Column(
            "flapping_members",
            ArrayOf(STRING),
            "Members that joined and went repeatedly in the storm: group instance ids, else client ids.",
            is_personal=True,
        ),
        Column("cause_methods", ArrayOf(STRING), "The rule by which each of `causes` was inferred, in their order."),
        Column("cause_confidences", ArrayOf(STRING), "The confidence of each of `causes`, in their order."),
        Column(
            "rollout_id",
            STRING,
            "The group's rolling deployment that it belongs to: incarnation/to_generation of its first "
            "rebalance; null without one.",
        ),
        Column("rollout_confidence", STRING, "Confidence of the rolling deployment: LIKELY GUESS; null without one."),
        Column(
            "unowned_likely_ms",
            BIGINT,
            "Sum over partitions of the time in which most likely nobody read them, in ms: unowned_partition_ms, and "
            "the time since their members stopped, before the log shows that: at their last commits before an eager "
            "rebalance, or when they died. Null if started_at is null.",
        ),
        Column(
            "unowned_most_ms",
            BIGINT,
            "The most that it can be, by each member's last commit, and by rebalance and session timeouts; "
            "unowned_partition_ms is the least.",
        ),
        Column(
            "unowned_confidence",
            STRING,
            "Of unowned_likely_ms. LIKELY: each member that stopped had committed regularly. GUESS: one had not, or "
            "its client came back after it was dropped, and so may have lived on.",
        ),
        LOG_PARTITION,
        IS_FORMER_LOG_PARTITION,
        DAY_OF_END,
    ),
)

REDELIVERIES = gold_table(
    name="redeliveries",
    comment="An offset range of a share partition that was released, or delivered again.",
    partition_by=(*BY_DAY, "is_settled"),
    day_of="at",
    columns=(
        *GROUP_COLUMNS,
        TOPIC_OF_ID,
        TOPIC_ID,
        PARTITION,
        FIRST_OFFSET,
        LAST_OFFSET,
        LOG_OFFSET,
        AT,
        Column("from_delivery_count", INT, "Delivery count before; null if unknown."),
        Column("to_delivery_count", INT, "Delivery count after."),
        Column("cause", STRING, "HANDED_BACK RETRIED COUNT_LOST RETURNED."),
        Column("likely_cause", STRING, "RELEASED LOCK_TIMEOUT SESSION_CLOSED, or null."),
        METHOD,
        CONFIDENCE,
        Column("leader_changed", BOOLEAN, "A new leader loaded the state in between."),
        LOG_PARTITION,
        IS_FORMER_SHARE_LOG_PARTITION,
        IS_SETTLED,
        DAY_OF_IT,
    ),
)

ARCHIVED_RECORDS = gold_table(
    name="archived_records",
    comment="An offset range of a share partition that was given up.",
    partition_by=(*BY_DAY, "is_settled"),
    day_of="at",
    columns=(
        *GROUP_COLUMNS,
        TOPIC_OF_ID,
        TOPIC_ID,
        PARTITION,
        FIRST_OFFSET,
        LAST_OFFSET,
        LOG_OFFSET,
        AT,
        Column("delivery_count", INT, "Delivery count; null if it was never seen."),
        Column("delivery_count_limit", INT, "Delivery limit in force at that time; null where nothing shows it."),
        Column("cause", STRING, "REJECT_OR_GAP LIMIT_OR_REJECT UNSEEN START_OFFSET_MOVED."),
        Column(
            "likely_cause",
            STRING,
            "REJECTED GAP DELIVERY_LIMIT AGED_OUT ABORTED_TRANSACTION TRANSACTION_MARKER (not a record: the end "
            "of a transaction takes an offset), or null.",
        ),
        METHOD,
        CONFIDENCE,
        Column(
            "dead_letter",
            STRING,
            "What the log shows of a copy on a dead letter topic: TRIED (the broker archives the record "
            "whatever the result), REFUSED (the topic is not enabled for groups, or its name lacks the brokers' "
            "prefix), NOT_TRIED (the group has such a topic, and the record was given up without a copy); null "
            "if the group has none or the log does not show it.",
        ),
        LOG_PARTITION,
        IS_FORMER_SHARE_LOG_PARTITION,
        IS_SETTLED,
        DAY_OF_IT,
    ),
)

SHARE_OFFSET_CHANGES = gold_table(
    name="share_offset_changes",
    comment="An admin, or the end of the group, changed what a share partition delivers next.",
    day_of="at",
    columns=(
        *GROUP_COLUMNS,
        TOPIC_OF_ID,
        TOPIC_ID,
        PARTITION,
        LOG_OFFSET,
        AT,
        Column("kind", STRING, "SKIPPED_BY_RESET REWOUND_BY_RESET OFFSETS_DELETED GROUP_DELETED."),
        Column(
            "from_offset",
            BIGINT,
            "Start offset before (START-OFFSET of `describe`), moved over what was finished behind it, as the broker "
            "writes it next; null if none was written.",
        ),
        Column("to_offset", BIGINT, "Start offset after; null where deleted."),
        Column(
            "never_delivered_count",
            BIGINT,
            "Offsets between the two that were not delivered before and are not after; of a deletion, those up to "
            "where the group began again. Null where the log cannot tell, or while the group has not begun again.",
        ),
        Column(
            "delivered_again_count",
            BIGINT,
            "Offsets that had been delivered and that the new start offset delivers again, until the next change. Null "
            "as in never_delivered_count.",
        ),
        METHOD,
        CONFIDENCE,
        LOG_PARTITION,
        IS_FORMER_SHARE_LOG_PARTITION,
        DAY_OF_IT,
    ),
)

COMMIT_ANOMALIES = gold_table(
    name="commit_anomalies",
    comment="A rewind, reset, skip, stall or delete of committed offsets.",
    day_of="at",
    columns=(
        *GROUP_COLUMNS,
        key("topic", STRING, "The topic."),
        PARTITION,
        LOG_OFFSET,
        AT,
        Column("kind", STRING, "REWIND SKIP STALLED DELETED FORGOTTEN ABORTED EMPTY_GROUP_RESET."),
        Column("from_offset", BIGINT, "Committed offset before."),
        Column("to_offset", BIGINT, "Committed offset after."),
        Column("delta", BIGINT, "to_offset minus from_offset."),
        Column("owner_member_id", STRING, "The member that owned the partition then.", is_personal=True),
        Column("owner_client_host", STRING, "The host of that member.", is_personal=True),
        Column("was_group_empty", BOOLEAN, "The group had no members then; null if a hole in the log hides it."),
        Column(
            "likely_cause",
            STRING,
            "For DELETED: TOPIC_DELETED GROUP_DELETED OFFSETS_DELETED EXPIRED; for REWIND: TOPIC_RECREATED; "
            "null if the log does not show it.",
        ),
        METHOD,
        CONFIDENCE,
        LOG_PARTITION,
        IS_FORMER_LOG_PARTITION,
        DAY_OF_IT,
    ),
)

LAG_HISTORY = gold_table(
    name="lag_history",
    comment="How far a group was behind the log end offset of its topic at a commit, if the end was sampled "
    "around that time.",
    day_of="at",
    columns=(
        *GROUP_COLUMNS,
        key("topic", STRING, "The topic."),
        PARTITION,
        LOG_OFFSET,
        AT,
        Column("committed_offset", BIGINT, "The committed offset."),
        Column(
            "end_offset",
            BIGINT,
            "The log end offset at that time, between the samples before and after; null with only one sample.",
        ),
        Column("lag", BIGINT, "end_offset minus committed_offset; below 0 if the commit is beyond the end."),
        Column("lag_min", BIGINT, "Lower bound, from the sample before."),
        Column("lag_max", BIGINT, "Upper bound, from the sample after; null without one."),
        Column(
            "time_behind_ms",
            BIGINT,
            "Time since the end passed the committed offset, in ms; null beyond the samples or 7 days.",
        ),
        Column("sampled_at", TIMESTAMP, "Time of the nearest sample."),
        METHOD,
        CONFIDENCE,
        LOG_PARTITION,
        DAY_OF_IT,
    ),
)

LOG_ANOMALIES = gold_table(
    name="log_anomalies",
    comment="Where a log breaks the coordinators' own rules, what is odd about clients and the log, and what "
    "that means.",
    day_of="at",
    columns=(
        CLUSTER_ID,
        key("log_topic", STRING, "The coordinator topic."),
        key("log_partition", INT, "Partition of this topic."),
        LOG_OFFSET,
        key("rule", STRING, "The broken rule, or what is odd."),
        key("ordinal", INT, "Number of the anomaly among several in one record."),
        Column("group_id", STRING, "The group."),
        Column("group_type", STRING, "CLASSIC, CONSUMER, SHARE or STREAMS; null if unknown."),
        AT,
        Column("topic", STRING, "The source topic it concerns, if any."),
        Column("topic_id", STRING, "Its topic id, if it is in the log."),
        Column("partition", INT, "Its partition, if any."),
        Column("member_id", STRING, "The member it concerns, if any.", is_personal=True),
        Column("details", STRING, "What the log shows.", is_personal=True),
        Column("meaning", STRING, "What it means."),
        Column("known_defects", ArrayOf(STRING), "Kafka issues that look like this in the log."),
        METHOD,
        CONFIDENCE,
        Column("remedy", STRING, "What to do."),
        Column(
            "category",
            STRING,
            "COORDINATOR: a rule of the coordinators is broken; CLIENT: what a kind of client writes, one row "
            "per group; LOG: the log itself is odd; GROUP: how a group is used, such as TWO_APPLICATIONS; "
            "AUDIT: a group or log partition could not be judged, or an input could not be read, "
            "so it is missing from gold.",
        ),
        DAY_OF_IT,
    ),
)

HANGING_TRANSACTIONS = gold_table(
    name="hanging_transactions",
    comment="Transactions with offset commits that are still open at the end of the log, for longer than a "
    "transaction may take: since when, by which producer, and what they block.",
    columns=(
        CLUSTER_ID,
        as_key(GROUP_ID),
        as_key(LOG_PARTITION),
        key("producer_id", BIGINT, "The producer whose transaction it is."),
        Column(
            "since",
            TIMESTAMP,
            "When its first commit that is still pending was written; null if its records have no time.",
        ),
        Column("first_log_offset", BIGINT, "Offset of that record."),
        Column("last_log_offset", BIGINT, "Offset of its last pending commit for the group."),
        Column("commit_count", BIGINT, "Number of its pending commits for the group."),
        Column(
            "log_end_at", TIMESTAMP, "When the last record of the log partition was written; null if none has a time."
        ),
        Column("open_ms", BIGINT, "log_end_at minus since, in ms; null if one of them is."),
        Column(
            "uncleanable_count",
            BIGINT,
            "Offsets of the log partition that cannot be cleaned, from its first record on.",
        ),
        Column("meaning", STRING, "What it means."),
        METHOD,
        CONFIDENCE,
        Column("remedy", STRING, "What to do."),
        DAY_OF_END,
    ),
)

GROUP_SUMMARY = gold_table(
    name="group_summary",
    comment="One row per group and day.",
    columns=(
        *GROUP_COLUMNS,
        DAY,
        Column("generation_count", INT, "Generations or group epochs begun."),
        Column("rebalance_count", INT, "Rebalances begun; those of share groups are in gold.share_group_summary."),
        Column("member_count_max", INT, "Highest number of members at one time."),
        Column("commit_count", BIGINT, "Offset commits applied."),
        Column("commit_anomaly_count", BIGINT, "Rows in gold.commit_anomalies."),
        Column("not_stable_ms", BIGINT, "Time in a state other than Stable and Empty, in ms."),
        Column("storm_rebalance_count", INT, "Rebalances in storms."),
        Column("unowned_partition_ms", BIGINT, "Sum over partitions of the time without an owner, in ms."),
        Column("worst_topic", STRING, "Topic of the partition with the most unowned time."),
        Column("worst_partition", INT, "The partition with the most unowned time."),
        Column(
            "went_back_count",
            BIGINT,
            "Commits of a lower offset than before, by members or reset by a tool: rows in gold.commit_anomalies with "
            "to_offset below from_offset, but ABORTED and TOPIC_RECREATED ones.",
        ),
        Column("unowned_least_ms", BIGINT, "The same as unowned_partition_ms, which the log shows."),
        Column(
            "unowned_likely_ms",
            BIGINT,
            "Sum over partitions of the time in which most likely nobody read them, in ms: what gold.rebalances adds "
            "to the least, on the day when the rebalance started.",
        ),
        Column("unowned_most_ms", BIGINT, "Likewise the most that it can be."),
        LOG_PARTITION,
    ),
)

SHARE_GROUP_SUMMARY = gold_table(
    name="share_group_summary",
    comment="One row per share group and day.",
    columns=(
        *GROUP_COLUMNS,
        DAY,
        Column("acknowledged_count", BIGINT, "Offsets acknowledged."),
        Column("redelivered_count", BIGINT, "Offsets released or delivered again, counted each time."),
        Column("archived_count", BIGINT, "Offsets given up, including those of transaction markers."),
        Column("generation_count", INT, "Group epochs begun."),
        Column("member_count_max", INT, "Highest number of members at one time."),
        Column("worst_topic", STRING, "Topic of the partition with the most offsets given up."),
        Column("worst_partition", INT, "The partition with the most offsets given up."),
        Column(
            "records_given_up",
            BIGINT,
            "Records given up: archived_count without offsets that are no records (gaps, markers) and records of "
            "aborted transactions, as far as gold.archived_records.likely_cause tells them.",
        ),
        Column(
            "records_redelivered",
            BIGINT,
            "Records of gold.redeliveries, each counted once: on the day of its first row, and again after a reset.",
        ),
        Column(
            "extra_deliveries",
            BIGINT,
            "Deliveries beyond each record's first that delivery counts show; a lower bound. A record that was handed "
            "back and not delivered again has none.",
        ),
        Column("offset_change_count", BIGINT, "Rows in gold.share_offset_changes."),
        Column("never_delivered_count", BIGINT, "Sum of that column in gold.share_offset_changes."),
        Column("delivered_again_count", BIGINT, "Sum of that column in gold.share_offset_changes."),
        Column("rebalance_count", INT, "Rebalances begun."),
    ),
)

GOLD_TABLES = (
    PARTITION_OWNERS,
    REBALANCES,
    REDELIVERIES,
    ARCHIVED_RECORDS,
    SHARE_OFFSET_CHANGES,
    COMMIT_ANOMALIES,
    LAG_HISTORY,
    LOG_ANOMALIES,
    HANGING_TRANSACTIONS,
    GROUP_SUMMARY,
    SHARE_GROUP_SUMMARY,
)
