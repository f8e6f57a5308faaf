"""From replayed operations to history: generations, members, assignments and events."""
