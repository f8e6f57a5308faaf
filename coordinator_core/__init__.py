"""Kafka's coordinators in plain Python: bytes to batches to records to state. No Spark, no clock, no randomness."""
