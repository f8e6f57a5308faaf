"""The answers of the commands: each reads tables, and says what they hold."""
