"""Consumer groups: the protocol of KIP-848 (ConsumerGroup), and members of the classic protocol inside them.

Replay is in `state` and `replay`. The live side, `commands`, is cut into the steps of a heartbeat
(GroupMetadataManager.consumerGroupHeartbeat); a JoinGroup of a classic member takes the same steps. A step reads a
group, appends to `records` (a list, in the order in which they are to be written), and gives what the next step needs;
nothing of the group changes before the records are replayed. All of them take `context` first.

Step by step, `group` being a `state.ConsumerGroup`, `member` the member before and `updated` after:

1. `membership.check_not_full(context, group, member_id)`;
   `membership.dynamic_member(group, member_id, epoch, owned, create=, is_classic=)` or
   `membership.static_member(group, member_id, epoch, instance_id, owned, records, create=, is_classic=)`: the member,
   or a new one which no record knows yet; Refused with the errors of epochs and instance ids. A static member which
   comes back under another id is replaced: the records for that are in `records`.
2. `update.member_changed(group.group_id, member, updated, records) -> bool`: the record of the member, where anything
   changed; whether its topic names did.
   `regexes.update_regexes(context, group, member, updated, records) -> regexes.RegexChange`: deletes a pattern which
   nobody uses any more, and queues the task which resolves patterns.
3. `update.update_metadata(context, group, member, updated, records, bump=) -> (group epoch, SubscriptionType)`, where
   the subscription changed or `update.is_metadata_expired(context, group)`: hash of the topics, bump of the epoch.
   Otherwise `group.group_epoch` holds, and the group's own subscription type (None in the next step).
4. `target.update_target(context, group, group_epoch, member, updated, subscription_type, records) -> target.Target`
   (epoch, partitions of the member): runs the assignor where the target is behind and the interval has passed.
   `target.last_target(group, updated)` is the target as it was.
5. `reconciliation.reconcile(context, group, updated, target, owned, records, subscription_changed=) -> ConsumerMember`:
   moves the member towards its target (CurrentAssignmentBuilder), and sets its rebalance time-out.

`owned` is None or a tuple of `messages.TopicPartitions` (topic_id, partitions).

Further: `membership.fence_members(context, group, members, response) -> Result` (leave, time-outs): a tuple of members
goes; it asks `conversion` whether the group becomes classic thereby. `membership.replace_member(records, group, old,
new)`. `timers`: keys and `schedule_session`, `schedule_rebalance`, `cancel_rebalance`, `schedule_join_if_absent`,
`cancel_join`, `schedule_sync`, `cancel_sync`, `cancel_all`; all but the rebalance time-out run `FENCE_MEMBER`.
`records`: one function a record type, and one a tombstone. `subscriptions.subscriptions_of(group)`: counts of topics,
patterns, assignors, classic members and their protocols, kept while the members stay the same objects.
`coordinator.metadata_hash.metadata_hash(image, topic names) -> int`.

What the other module of classic members gives (`conversion`, which must not import `membership`):

* `upgrade(context, classic_group, records) -> ConsumerGroup`: raises Refused where the classic group may not become a
  consumer group; else appends the records of the conversion, answers who waits, starts the members' sessions, and gives
  the group as it is after those records. Called with a group which is not Empty.
* `can_downgrade(context, group, leaving) -> bool` (validateOnlineDowngradeWithFencedMembers);
* `downgrade(context, group, leaving, response) -> Result`: all of it, with the rebalance that follows.
"""
