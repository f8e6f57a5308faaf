"""Every bound as a named constant, with its reason. Those a user may change are defaults of conf/groupledger.toml."""

from typing import Final

BATCH_DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
"""A broker's coordinator batch is at most max.message.bytes (1 MiB by default) before compression; 64 MiB leaves room
for raised settings and stops a compression bomb."""

BATCH_BYTES_MAX: Final = 256 * 1024 * 1024
"""Largest believable batch on disk. A length field above it is a lie, not a batch."""

QUARANTINE_BYTES_MAX: Final = 64 * 1024
"""How many bytes of what could not be read are kept in a quarantine row; the rest is named by position and size."""

PARTED_BYTES_MAX: Final = 1024 * 1024
"""How many bytes are kept of batches without a leader epoch in place of which those of another copy count: they come
back where a newer epoch cuts that copy away. A tail that parts from the log is small; no log is kept twice."""

NESTING_DEPTH_MAX: Final = 16
"""Coordinator messages nest four levels deep; more than this is a fault of a declaration."""

APPLICATION_NAMES_MAX: Final = 20
"""So many topics, and so many clients, are named of each application where several are under one group.id. They are to
be recognized by them; all of them are in silver.member_attributes."""

CLIENT_NOTES_MAX: Final = 64
"""So many notes are kept of how clients of one group write their subscriptions and assignments. A group has one or two
kinds of clients; one whose client ids are random letters would have a note a member."""
