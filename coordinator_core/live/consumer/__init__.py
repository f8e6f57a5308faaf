"""Consumer groups: the protocol of KIP-848 (ConsumerGroup), and members of the classic protocol inside them.

Replay is in `state` and `replay`. The live side, `commands`, consists of the steps of a heartbeat
(GroupMetadataManager.consumerGroupHeartbeat); a JoinGroup of a classic member takes the same steps. A step reads a
group, appends to `records` (a list, in the order in which they are written), and returns what the next step needs; the
group does not change before the records are replayed. All functions take `context` first.

1. `membership`: the member, or a new one that is in no record yet; raises Refused for errors of epochs and instance
   ids. A static member that comes back under another id is replaced, and the records for that are appended.
2. `update.member_changed` appends the member's record, and `regexes.update_regexes` deletes a pattern that no member
   uses any more, and queues the task that resolves patterns. `update.update_metadata`, where the subscription changed
   or the hash of the topics is too old, bumps the epoch.
3. `target.update_target` runs the assignor if the target is behind and the interval has passed.
4. `reconciliation.reconcile` moves the member towards its target (CurrentAssignmentBuilder), and sets its rebalance
   timeout.

Further: `membership.fence_members` removes members that leave or time out; `conversion` decides whether the group
becomes classic, and must not import `membership`; `records` has a function for each record type; `subscriptions` counts
topics, patterns, assignors and classic members, cached with the group.
"""
