"""Transactions of the controller in `__cluster_metadata` (KIP-868)."""

from collections.abc import Sequence
from typing import Generic, TypeVar

from schemas.cluster_metadata import MetadataRecordType

Record = TypeVar("Record")


class MetadataTransaction(Generic[Record]):
    """Records between BeginTransaction and EndTransaction count once the transaction has ended; AbortTransaction
    discards them."""

    def __init__(self, pending: Sequence[Record] | None = None) -> None:
        """`pending`: the records of the open transaction so far; None if none is open."""
        self.pending: list[Record] | None = None if pending is None else list(pending)

    def take(self, record_type: int | None, record: Record | None) -> Sequence[Record]:
        """The records that count from this one on, in log order: the record itself (None: a record of no use), all
        records of the transaction that it ends, or none yet."""
        match record_type:
            case MetadataRecordType.BEGIN_TRANSACTION:
                self.pending = []
            case MetadataRecordType.END_TRANSACTION:
                found, self.pending = self.pending or (), None
                return found
            case MetadataRecordType.ABORT_TRANSACTION:
                self.pending = None
            case _ if record is not None:
                if self.pending is None:
                    return (record,)
                self.pending.append(record)
        return ()
