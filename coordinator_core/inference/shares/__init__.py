"""Share partitions: redeliveries, archived records, moved start offsets."""
