"""Types that name a log partition and its offsets, where they are keys or values of plain data."""

LogPartition = tuple[str, int]
OffsetRange = tuple[int, int]
"""The first and the last offset, both inclusive."""
