"""Share groups: membership and assignment of KIP-932 (ShareGroup)."""
