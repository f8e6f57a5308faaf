"""Records of aborted transactions: which log batches have them, and what remains of a member's acquisition."""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop

from coordinator_core.live.share_partition.state import NO_PRODUCER_ID, AbortedTransaction, AcquiredRecords, LogBatch


def aborted_batches(
    log_batches: Iterable[LogBatch], aborted_transactions: Iterable[AbortedTransaction]
) -> list[LogBatch]:
    """The log batches that belong to an aborted transaction, in log order.

    A producer's transaction is aborted from its first offset up to the abort marker; the marker itself stays, and a
    commit marker inside the range does not. Source: SharePartition.fetchAbortedTransactionRecordBatches.
    """
    waiting = [(transaction.first_offset, transaction.producer_id) for transaction in aborted_transactions]
    heapify(waiting)
    aborted_producer_ids: set[int] = set()
    aborted = []
    for batch in log_batches:
        if batch.producer_id == NO_PRODUCER_ID:
            continue
        while waiting and waiting[0][0] <= batch.last_offset:
            aborted_producer_ids.add(heappop(waiting)[1])
        if batch.is_abort_marker:
            aborted_producer_ids.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in aborted_producer_ids:
            aborted.append(batch)
    return aborted


def without_batches(acquired: Sequence[AcquiredRecords], removed: Sequence[LogBatch]) -> list[AcquiredRecords]:
    """The acquired ranges without the offsets of the removed batches; both ascend, and so does the result.

    Source: SharePartition.filterRecordBatchesFromAcquiredRecords.
    """
    kept = []
    at = 0
    for first_offset, last_offset, delivery_count in acquired:
        while at < len(removed) and removed[at].last_offset < first_offset:
            at += 1
        rest_offset, ahead = first_offset, at
        while ahead < len(removed) and removed[ahead].first_offset <= last_offset:
            if rest_offset < removed[ahead].first_offset:
                kept.append(AcquiredRecords(rest_offset, removed[ahead].first_offset - 1, delivery_count))
            rest_offset = removed[ahead].last_offset + 1
            ahead += 1
        if rest_offset <= last_offset:
            kept.append(AcquiredRecords(rest_offset, last_offset, delivery_count))
    return kept
