"""Sources of logs: segment files, live brokers and dumps, and the Spark data source over them."""
