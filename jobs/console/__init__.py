"""What people read and type: names of commands, output, progress."""
