"""What names a log partition and offsets in it, wherever both are keys or values of plain data."""

LogPartition = tuple[str, int]
"""Topic and partition."""
OffsetRange = tuple[int, int]
"""The first and the last offset, both inclusive."""
