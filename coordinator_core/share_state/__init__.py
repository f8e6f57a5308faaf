"""The share coordinator's state: what `__share_group_state` says of every share partition (KIP-932)."""
