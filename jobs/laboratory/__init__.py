"""simulate and whatif: the jobs that run the coordinators alive."""
