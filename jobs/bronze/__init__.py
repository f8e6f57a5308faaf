"""From source to bronze: the batches of the logs as Kafka wrote them, and which offsets are captured."""
