"""Share partitions' persisted state: snapshots, updates, and how batches combine."""
