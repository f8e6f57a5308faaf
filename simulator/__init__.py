"""A cluster on a virtual clock: the live coordinators, their clients, and what would have happened."""
