"""Streams groups: the protocol of KIP-1071 (StreamsGroup)."""
