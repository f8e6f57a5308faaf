"""User interface: names of commands, output, progress."""
