"""Streams groups: the protocol of KIP-1071 (StreamsGroup).

Replay is in `state`, `replay` and `processes`. The live side starts in `commands`, where a heartbeat goes through its
steps: `topology` checks the application's topology against the cluster, `target` and `sticky_assignor` say which member
is to have which task, `reconciliation` moves a member there. `live` has what no record shows, `endpoints` what members
learn of each other, `rules` and `describe` what others ask of a group, `request_validation` what is refused before.
"""
