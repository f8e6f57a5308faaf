"""Declarations only: every coordinator message in every version, and every Delta table."""
