"""Client libraries of four languages as judges: groups of their members on a real broker, and what their own callbacks
said."""
