"""The bytes of Kafka's log: segments, batches, compression, records."""
