"""The record counts of a run: every record that was read is accounted for."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class LedgerCounts:
    """Record counts of one or more log partitions. `record_count` comes from the batch headers, the others from
    decoding.
    """

    record_count: int = 0
    decoded_count: int = 0
    tombstone_count: int = 0
    control_count: int = 0
    unknown_type_count: int = 0
    quarantined_count: int = 0
    not_used_count: int = 0
    """Records of a known type that the ledger does not need: most of the metadata log."""
    unknown_field_count: int = 0
    """Decoded records with tagged fields that no declaration has, as a later release writes them."""

    def __add__(self, other: "LedgerCounts") -> "LedgerCounts":
        return LedgerCounts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(LedgerCounts)))

    @property
    def difference(self) -> int:
        """Records that were read and are not accounted for; below 0: records that are counted twice."""
        return self.record_count - (
            self.decoded_count
            + self.tombstone_count
            + self.control_count
            + self.not_used_count
            + self.unknown_type_count
            + self.quarantined_count
        )

    @property
    def is_balanced(self) -> bool:
        """Records in = decoded + tombstones + control + not used + unknown type + quarantined."""
        return self.difference == 0
