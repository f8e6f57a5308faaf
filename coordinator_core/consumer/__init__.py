"""Consumer groups: the protocol of KIP-848 (ConsumerGroup), and members of the classic protocol inside them.

Replay is in `state` and `replay`. The live side, `commands`, consists of the steps of a heartbeat
(GroupMetadataManager.consumerGroupHeartbeat); a JoinGroup of a classic member takes the same steps. A step reads a
group, appends to `records` (a list, in the order in which they are written), and returns what the next step needs; the
group does not change before the records are replayed. All functions take `context` first.

The steps, where `group` is a `state.ConsumerGroup`, `member` the member before and `updated` after the request:

1. `membership.check_not_full(context, group, member_id)`;
   `membership.dynamic_member(group, member_id, epoch, owned, create=, is_classic=)` or
   `membership.static_member(group, member_id, epoch, instance_id, owned, records, create=, is_classic=)`: the member,
   or a new one that is in no record yet; raises Refused for errors of epochs and instance ids. A static member that
   comes back under another id is replaced, and the records for that are appended.
2. `update.member_changed(group.group_id, member, updated, records) -> bool`: appends the member's record if anything
   changed; returns whether its topic names did.
   `regexes.update_regexes(context, group, member, updated, records) -> regexes.RegexChange`: deletes a pattern that no
   member uses any more, and queues the task that resolves patterns.
3. `update.update_metadata(context, group, member, updated, records, bump=) -> (group epoch, SubscriptionType)`, where
   the subscription changed or `update.is_metadata_expired(context, group)`: hash of the topics, bump of the epoch.
   Otherwise the next step uses `group.group_epoch` and the group's own subscription type (None).
4. `target.update_target(context, group, group_epoch, member, updated, subscription_type, records) -> target.Target`
   (epoch, partitions of the member): runs the assignor if the target is behind and the interval has passed.
   `target.last_target(group, updated)` is the existing target.
5. `reconciliation.reconcile(context, group, updated, target, owned, records, subscription_changed=) -> ConsumerMember`:
   moves the member towards its target (CurrentAssignmentBuilder), and sets its rebalance timeout.

`owned` is None or a tuple of `messages.TopicPartitions` (topic_id, partitions).

Further: `membership.fence_members(context, group, members, response) -> Result` (leave, timeouts): removes a tuple of
members; `conversion` decides whether the group becomes classic. `membership.replace_member(records, group, old, new)`.
`timers`: keys and `schedule_session`, `schedule_rebalance`, `schedule_join_if_absent`, `schedule_sync`, `cancel_all`;
all but the rebalance timeout run `FENCE_MEMBER`. `records`: one function for each record
type. `subscriptions.subscriptions_of(group)`: counts of topics, patterns, assignors, classic members and their
protocols, cached with the group.
`coordinator.metadata_hash.metadata_hash(image, topic names) -> int`.

The interface of `conversion`, which must not import `membership`:

* `upgrade(context, classic_group, records) -> ConsumerGroup`: raises Refused if the classic group may not become a
  consumer group. Otherwise it appends the records of the conversion, answers waiting requests, starts the members'
  sessions, and returns the group after those records. The group must not be Empty.
* `can_downgrade(context, group, leaving) -> bool` (validateOnlineDowngradeWithFencedMembers);
* `downgrade(context, group, leaving, response) -> Result`: the whole conversion, with the rebalance that follows.
"""
