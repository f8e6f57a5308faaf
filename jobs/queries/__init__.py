"""Questions to the tables, and their answers."""
