"""Streams groups: the protocol of KIP-1071 (StreamsGroup).

Replay is in `state`, `replay` and `processes`. The live side starts in `commands`, where a heartbeat goes through its
steps: `topology` checks the application's topology against the cluster, `target` and `sticky_assignor` decide which
member should have which task, `reconciliation` moves a member there. `live` has what is in no record, `endpoints` what
members learn about each other, `rules` the group's part in other requests, `request_validation` the
checks before.
"""
