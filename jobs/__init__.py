"""The only Spark: read, select, hand to the core, select, write."""
