"""What makes parts of the project from other parts of it."""
