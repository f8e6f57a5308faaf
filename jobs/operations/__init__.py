"""Jobs that combine other jobs, and jobs that maintain a warehouse: nightly, maintain, erase, metrics."""
