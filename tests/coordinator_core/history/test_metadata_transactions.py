"""Transactions of the controller: what counts, and when."""

from coordinator_core.history.metadata_transactions import MetadataTransaction
from schemas.cluster_metadata import MetadataRecordType as Type

BEGIN, END, ABORT = Type.BEGIN_TRANSACTION, Type.END_TRANSACTION, Type.ABORT_TRANSACTION


def test_records_count_once_their_transaction_has_ended() -> None:
    """Outside of one at once, within one at its end, and not at all where it was aborted; also over a cut of the
    log."""
    transaction = MetadataTransaction[str]()
    assert transaction.take(Type.TOPIC, "plain") == ("plain",)
    assert [*transaction.take(BEGIN, None), *transaction.take(Type.TOPIC, "a")] == []
    later = MetadataTransaction(transaction.pending)
    assert [*later.take(Type.TOPIC, None), *later.take(Type.TOPIC, "b")] == []
    assert list(later.take(END, None)) == ["a", "b"]
    assert later.pending is None
    assert [*later.take(BEGIN, None), *later.take(Type.TOPIC, "lost"), *later.take(ABORT, None)] == []
    assert [*later.take(END, None), *later.take(Type.TOPIC, "next")] == ["next"]
