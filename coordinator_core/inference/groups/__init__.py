"""Groups: owners, rebalances and their causes."""
