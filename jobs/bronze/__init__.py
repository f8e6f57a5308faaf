"""What is captured, as the logs had it, and how far: source to bronze."""
