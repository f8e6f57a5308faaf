"""Consumer groups: the protocol of KIP-848 (ConsumerGroup)."""
