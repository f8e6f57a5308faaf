"""The ledger line: every incoming record is accounted for, or the run reports that it is not."""

from collections.abc import Mapping
from functools import reduce
from operator import add

from coordinator_core.history.ledger import LedgerCounts
from coordinator_core.text import counted
from jobs.console.command_name import command


def total(counts: Mapping[str, LedgerCounts]) -> LedgerCounts:
    """The sum over all topics."""
    return reduce(add, counts.values(), LedgerCounts())


def unknown_fields_line(counts: LedgerCounts, place: str) -> str:
    """A sentence: a newer release of Kafka wrote fields that this version does not read. `place`: options that end a
    command."""
    return (
        f"{counted(counts.unknown_field_count, 'record')} with fields that this version does not know, of a later "
        "Kafka: bronze has the bytes, silver has what is known; upgrade Groupledger, then run "
        f"{command('replay --rebuild' + place)}"
    )


def ledger_line(counts: LedgerCounts) -> str:
    """`9 records in = 4 decoded + 1 tombstones + 1 control + 2 not used + 1 unknown type + 0 quarantined`."""
    line = (
        f"{counts.record_count:,} records in = {counts.decoded_count:,} decoded"
        f" + {counts.tombstone_count:,} tombstones + {counts.control_count:,} control"
        f" + {counts.not_used_count:,} not used"
        f" + {counts.unknown_type_count:,} unknown type + {counts.quarantined_count:,} quarantined"
    )
    return line if counts.is_balanced else f"{line}: DOES NOT BALANCE, {counts.difference:+,}"
