"""The ledger of a run: every record that went in came out as something."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class LedgerCounts:
    """Records of one log partition or many. `record_count` comes from the batch headers, the others from decoding."""

    record_count: int = 0
    decoded_count: int = 0
    tombstone_count: int = 0
    control_count: int = 0
    unknown_type_count: int = 0
    quarantined_count: int = 0
    not_used_count: int = 0
    """Records of a known type that tells nothing of what the ledger keeps: most of the metadata log."""
    unknown_field_count: int = 0
    """Of those decoded: records with tagged fields that no declaration knows, as a later release writes them."""

    def __add__(self, other: "LedgerCounts") -> "LedgerCounts":
        return LedgerCounts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(LedgerCounts)))

    @property
    def difference(self) -> int:
        """Records which came in and became nothing; below 0: which became two things."""
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
