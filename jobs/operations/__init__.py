"""Jobs made of other jobs, and those that keep a warehouse: nightly, maintain, erase, metrics."""
