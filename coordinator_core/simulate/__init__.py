"""A cluster on a virtual clock: from a scenario file to coordinator logs, and the truth about them.

Theory of operation
-------------------
`simulate(scenario, seed)` runs one event loop (`clock.EventLoop`): a heap of (time in ms, sequence, action). Nothing
else moves time, and ties go by the order of scheduling, so a run is a function of the scenario and the seed.

* `scenario` reads and checks the TOML file: topics, groups, producers, faults, the brokers and their settings. An error
  names the file, the key and what to do.
* `simulation.Simulation` builds the cluster from it and runs it to the end.
* `lookups.Lookups` is how a client finds its coordinators: FindCoordinator, as in `coordinator_core.find_coordinator`.
* `cluster.Cluster` is the brokers: it routes a request to the broker which leads the coordinator's partition, drives
  the coordinators' timers and tasks, and moves leaders when a broker goes. Coordinators and their logs of real record
  batches are those of `coordinator_core.runtime`.
* `other_logs` writes `__cluster_metadata` (topics, partitions, configs of topics and groups) and `__transaction_state`:
  whoever replays the logs judges by the scenario's own settings.
* `topics.Topics` is the data: the end offset of a partition is a function of time, since nobody looks at payloads.
  Poison records, retention and transactions are known by offset.
* `dead_letters` copies what share groups gave up to the topics for that, whose logs are written, too (Kafka 4.4).
* `clients/` has the clients, one file a kind, pure state machines: see `clients/__init__.py` for their contract.
* `faults` turns the scenario's faults into events: crash, slow poll, pause, rolling deploy, broker failover ...
* `truth.Truth` writes down what happened, as it happens: from the clients' side and from the coordinator's answers,
  never from the bytes of the log.

Randomness: every actor has its own `random.Random`, seeded from the run's seed and the actor's name (`draw.stream`).
One more group in a scenario changes nothing in the others, and groups which share no log partition may be simulated
apart from one another, unless the cluster is new: then whoever comes first waits for the internal topics.

Network: a request takes the sender's latency, drawn once for each client, to the broker and back. Requests of one
client to one broker arrive in order. A broker which is gone does not answer; the client finds out after its request
time-out, or when it learns of the new leader.

Heartbeats: most of what a day's clients send changes nothing. While a group is *quiet* (no member joins, leaves,
reconciles, and nobody waits) its members' heartbeats are not sent; they are known to come at `first + k * interval`.
Whatever touches the group ends that before: each member's last heartbeat is then made good, so the coordinator's
session timers are as if all had been sent. Heartbeats of quiet groups write no record, so the bytes are the same
(`Simulation(skips_heartbeats=False)` sends them all; the tests compare).

The truth
---------
Files of `<output>/truth`, JSON, one object a line, in the order of `ts_ms` (epoch ms of the virtual clock). Keys ending
in `_ms` are such times. `log` is `[log partition, log offset]` of the record which says the same, where one does.

* `scenario.json`: name, about, seed, from_ms, to_ms, partition counts of the internal topics; one object.
* `topics.jsonl`: topic, topic_id, partition_count; a line more when a topic is made, and one with a count of 0 when it
  is deleted. `log_ends.jsonl`: topic, partition, end_offset (exclusive).
* `faults.jsonl`: every fault as it struck: `fault`, group, client_id, topic, partition, offset, broker, `until_ms`.
* `generations.jsonl`: a line for every generation (classic) or group epoch: group, group_type, generation, causes,
  members: {member_id: {client_id, ...}}, log. Classic groups also have leader and protocol_name, and of each member
  instance_id and assignment: [[topic, [partition, ...]], ...]. `causes` are the true ones since the generation before:
  `reason` (MEMBER_JOINED, MEMBER_LEFT, SESSION_EXPIRED, POLL_EXPIRED, TOPIC_CHANGED, SUBSCRIPTION_CHANGED,
  REVOKED_PARTITIONS, STATIC_MEMBER_BACK, PARTITIONS_CHANGED ...), at_ms, client_id and `fault`: the index of the line
  in `faults.jsonl` which hit this client last, or null.
* `assignments.jsonl`: what members of consumer and share groups own as their coordinator sees it: group, member_id,
  member_epoch (null: gone), assigned and pending_revocation: [[topic_id, [partition, ...]], ...], log.
* `tasks.jsonl`: the tasks of members of streams groups as their coordinator sees it: group, member_id, member_epoch,
  active, standby and warmup, and `_pending` of each (to be given up): [[subtopology, [partition, ...]], ...], log.
* `owners.jsonl`: group, topic, partition, client_id, generation, from_ms, to_ms, ended_by (null: still): from when to
  when a client itself believed that it owned a partition, and the records it was handed meanwhile: first_offset to
  next_offset (exclusive). Intervals of two clients may overlap: that is the zombie's story.
* `commits.jsonl`: a line for every OffsetCommit or TxnOffsetCommit which the log took: group, member_id, client_id,
  producer_id (-1: none), offsets: [[topic, partition, committed_offset, log offset], ...], log_partition.
* `deletions.jsonl`: what coordinators removed: `what` GROUP or OFFSET, group, topic, partition, log, and `why`:
  TOPIC_DELETED, GROUP_DELETED, EXPIRED, or null where a group of another protocol takes its place.
* `request_timeouts.jsonl`: requests whose answer a client gave up: group, client_id, operation, and how long it had
  waited (`waited_ms`).
* `transactions.jsonl`: producer_id, producer_epoch, outcome COMMITTED or ABORTED, log: the marker.
* Share groups, each line with group, topic, partition, first_offset and last_offset (inclusive):
  `deliveries.jsonl`: records which were acquired for a member: client_id, delivery_count.
  `acknowledgements.jsonl`: client_id, acknowledge_type, error (Kafka's exception class, or null: it took effect).
  `lock_timeouts.jsonl`: member_id. `archived.jsonl`: given up for good: why (REJECTED, DELIVERY_LIMIT, RETENTION, GAP),
  delivery_count. `dead_letters.jsonl`: copied to a dead letter topic: delivery_count, message, dead_letter_topic, log:
  [its partition, offset of the first copy], error (null: copied). `share_writes.jsonl`: state which the share
  coordinator took: start_offset, cause, state_batches.
* `end.jsonl`: what the group coordinators knew when the clock stopped: group, state (the dump of `GroupCoordinator`).
  `end_share.jsonl`: the share coordinators: group, topic_id, partition, state_epoch, start_offset, state_batches.

What is simplified: payloads do not exist; consumers read at a steady rate, so `owners` has ranges and no single polls;
`__cluster_metadata` and `__transaction_state` are on one broker that never fails; controllers elect after a fixed time.
The metadata hash of groups has no racks in it. Members of streams groups report no offsets of their tasks, standby
tasks have no state, and brokers of 4.4 hand out no warm-up tasks (as 4.4.0). A leader that loads while a topic is
deleted keeps its offsets. Two session timers which end in the same millisecond in one group may be reported in another
order where heartbeats are left out.
"""
