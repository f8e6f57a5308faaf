"""What Kafka's tools print of a log: kafka-dump-log and the formatters of the console consumer."""
