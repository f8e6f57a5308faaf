"""What is known of a log and of its groups, before anything is inferred."""
