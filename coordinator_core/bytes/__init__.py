"""Bytes: Kafka's log, the codec of messages, what Kafka's tools print, and which log offsets were captured."""
