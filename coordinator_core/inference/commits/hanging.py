"""gold.hanging_transactions: offsets committed inside a transaction that was never ended.

The transaction coordinator aborts a transaction after its timeout, which no client may set above the brokers'
`transaction.max.timeout.ms`, 15 minutes by default. The marker goes into every log partition that the transaction wrote
to. Where the log continues for longer than that after a transactional commit, and no marker came, the transaction
hangs: a coordinator lost it (KIP-890 explains how), and no timeout ends it. Where no time is known, only the log
position tells that the log continues without a marker, so that it hangs is a guess.

Until an admin aborts it, members that ask for stable offsets get UNSTABLE_OFFSET_COMMIT for its partitions, these
offsets do not expire, and the log cleaner stops before its first record.
"""

from typing import Final, NamedTuple

from coordinator_core.confidence import GUESS, LIKELY

TRANSACTION_TIMEOUT_MAX_MS: Final = 900_000
"""Kafka's default of transaction.max.timeout.ms. No log shows a higher setting, so the confidence is at most LIKELY."""

METHOD: Final = "NO_MARKER_FOR_LONG"
WITHOUT_TIMES: Final = "NO_MARKER_BEHIND"
MEANING: Final = (
    "A transaction was neither committed nor aborted for longer than any may take. Members that ask for stable offsets "
    "of these partitions wait, the offsets do not expire, and the log partition is not cleaned behind its first record."
)
MEANING_WITHOUT_TIMES: Final = (
    "A transaction was neither committed nor aborted in what follows in the log. For how long is unknown, since the "
    "records have no time, so it may be running still. If it hangs, members that ask for stable offsets of these "
    "partitions wait, the offsets do not expire, and the log partition is not cleaned behind its first record."
)
REMEDY: Final = (
    "Look with kafka-transactions find-hanging --broker-id ID whether it is still open, and end it with "
    "kafka-transactions abort."
)


class HangingRow(NamedTuple):
    """gold.hanging_transactions. Times are epoch ms, None if unknown."""

    group_id: str
    log_partition: int
    producer_id: int
    since: int | None
    first_log_offset: int
    last_log_offset: int
    commit_count: int
    log_end_at: int | None
    open_ms: int | None
    uncleanable_count: int
    meaning: str
    method: str
    confidence: str
    remedy: str


class OpenCommits(NamedTuple):
    """The pending commits of one group, producer and log partition."""

    group_id: str
    log_partition: int
    producer_id: int
    since_ms: int | None
    """None: their records have no time."""
    first_log_offset: int
    last_log_offset: int
    commit_count: int


def hanging(
    commits: OpenCommits, log_end_ms: int | None, next_offset: int, *, has_hole_behind: bool
) -> HangingRow | None:
    """The row of an open transaction, if it hangs. `log_end_ms`: when the last record of the log partition was written
    (None: no record has a time); `next_offset`: the log end; `has_hole_behind`: a part after the commits was not read,
    and may contain the marker."""
    open_ms = None if commits.since_ms is None or log_end_ms is None else log_end_ms - commits.since_ms
    is_last = next_offset <= commits.last_log_offset + 1
    if is_last if open_ms is None else open_ms <= TRANSACTION_TIMEOUT_MAX_MS:
        return None
    return HangingRow(
        commits.group_id,
        commits.log_partition,
        commits.producer_id,
        commits.since_ms,
        commits.first_log_offset,
        commits.last_log_offset,
        commits.commit_count,
        log_end_ms,
        open_ms,
        next_offset - commits.first_log_offset,
        MEANING_WITHOUT_TIMES if open_ms is None else MEANING,
        WITHOUT_TIMES if open_ms is None else METHOD,
        GUESS if has_hole_behind or open_ms is None else LIKELY,
        REMEDY,
    )
