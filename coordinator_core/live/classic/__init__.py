"""Classic groups: the JoinGroup/SyncGroup protocol (ClassicGroup)."""
