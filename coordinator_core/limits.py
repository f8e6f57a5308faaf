"""Bounds as named constants, each with its reason. Bounds that a user may change are defaults of
conf/groupledger.toml."""

from typing import Final

BATCH_DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
"""A broker's coordinator batch is at most max.message.bytes (1 MiB by default) before compression. 64 MiB leaves room
for raised settings and stops a compression bomb."""

BATCH_BYTES_MAX: Final = 256 * 1024 * 1024
"""Largest plausible batch on disk. A greater length field is damaged."""

PARTITION_COUNT_MAX: Final = 100_000
"""No topic has more partitions. What a name, row, record or option says beyond that is wrong: log partitions that
are in no source are counted one by one, and for each that is there files are made."""

QUARANTINE_BYTES_MAX: Final = 64 * 1024
"""How many unreadable bytes a quarantine row keeps; the rest is described by position and size."""

QUARANTINED_OFFSETS_MAX: Final = 10_000
"""The first offsets of a batch, whose records have a quarantine row each if they cannot be read; of later ones, rows
count those that are alike. A batch of a few KiB may hold nine million records; a coordinator's has some thousands."""

PARTED_BYTES_MAX: Final = 1024 * 1024
"""How many bytes are kept of batches without a leader epoch that lost to batches of another copy. They are restored
where a newer epoch truncates that copy. A diverging tail is small, so that no log is kept twice."""

NESTING_DEPTH_MAX: Final = 16
"""Coordinator messages nest four levels deep; deeper nesting is an error in a declaration."""

APPLICATION_NAMES_MAX: Final = 20
"""Bound on the topics, and on the clients, that are named for each application where several share one group.id. They
serve to recognize the application; silver.member_attributes has all of them."""

CLIENT_NOTES_MAX: Final = 64
"""Bound on the notes that are kept about how clients of one group write their subscriptions and assignments. A group
has one or two kinds of clients; random client ids would add one note for each member."""
