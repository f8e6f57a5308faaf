"""A cluster on a virtual clock: from a scenario file to coordinator logs, and the truth about them.

Theory of operation
-------------------
`simulate(scenario, seed)` runs one event loop (`clock.EventLoop`): a heap of (time in ms, sequence, action). Only the
loop advances the time, and actions of one time run in the order of scheduling, so a run depends on the scenario and the
seed alone.

`scenario` and its neighbours read and check the TOML file; `simulation.Simulation` builds the cluster from it and runs
it. `cluster.Cluster` has the brokers and routes requests: the coordinators and their logs of real record batches are
those of `coordinator_core.live.runtime`, `share_leader` serves the data to share groups. `topics.Topics` models that
data: the end offset of a partition is a function of time, since nothing reads payloads. `clients/` are pure state
machines, each run by a `process.Process`, and `faults` is what befalls them. `truth.Truth` records what happens, as it
happens: from the clients' side and from the coordinators' answers, never from the bytes of the log. `other_logs` and
`dead_letters` write the other logs of a cluster, so that a replay of the logs uses the scenario's own settings.

Randomness: every actor has its own `random.Random`, seeded from the run's seed and the actor's name
(`random_streams.stream`). One more group in a scenario changes nothing in the others, and groups that share no log
partition may be simulated separately, unless the cluster is new: then the first client waits for the internal topics.

Network: a request takes the sender's latency to the broker, and the answer takes it back; each client draws its latency
once. Requests of one client to one broker arrive in order. A broker that is down does not answer; the client finds out
after its request timeout, or when it learns of the new leader.

Heartbeats: most requests that clients send in a day change nothing. While a group is *quiet* (no member joins, leaves
or reconciles, and no request waits), its members send no heartbeats: these would arrive at `first + k * interval`.
Anything that affects the group ends this beforehand: each member's last heartbeat is then applied, so the coordinator's
session timers are as if all had been sent. Heartbeats of quiet groups write no record, so the bytes are the same
(`Simulation(skips_heartbeats=False)` sends them all; the tests compare).

The truth
---------
The files in `<output>/truth` are JSON, one object per line, in the order of `ts_ms` (epoch ms of the virtual clock).
Keys that end in `_ms` are such times. `log` is `[log partition, log offset]` of the record that says the same, if there
is one.

* `scenario.json`: name, about, seed, from_ms, to_ms, partition counts of the internal topics; one object.
* `topics.jsonl`: topic, topic_id, partition_count; one more line when a topic is created, and one with a count of 0
  when it is deleted. `log_ends.jsonl`: topic, partition, end_offset (exclusive).
* `faults.jsonl`: every fault when it happened: `fault`, group, client_id, topic, partition, offset, broker,
  `until_ms`.
* `generations.jsonl`: one line for every generation (classic) or group epoch: group, group_type, generation, causes,
  members: {member_id: {client_id, ...}}, log. Classic groups also have leader and protocol_name, and for each member
  instance_id and assignment: [[topic, [partition, ...]], ...]. `causes` are the true ones since the generation before:
  `reason` (MEMBER_JOINED, MEMBER_LEFT, SESSION_EXPIRED, POLL_EXPIRED, TOPIC_CHANGED, SUBSCRIPTION_CHANGED,
  REVOKED_PARTITIONS, STATIC_MEMBER_BACK, PARTITIONS_CHANGED ...), at_ms, client_id and `fault`: the index of the line
  in `faults.jsonl` that affected this client last, or null.
* `assignments.jsonl`: what members of consumer and share groups own according to their coordinator: group, member_id,
  member_epoch (null: the member left), assigned and pending_revocation: [[topic_id, [partition, ...]], ...], log.
* `tasks.jsonl`: the tasks of members of streams groups according to their coordinator: group, member_id, member_epoch,
  active, standby and warmup, and `_pending` of each (to be revoked): [[subtopology, [partition, ...]], ...], log.
* `owners.jsonl`: group, topic, partition, client_id, generation, from_ms, to_ms, ended_by (null: not ended): the
  interval in which the client itself believed that it owned the partition, and the records that it received in this
  interval: first_offset to next_offset (exclusive). Intervals of two clients overlap if one of them is a zombie.
* `commits.jsonl`: one line for every OffsetCommit or TxnOffsetCommit that the coordinator appended to the log: group,
  member_id, client_id, producer_id (-1: none), offsets: [[topic, partition, committed_offset, log offset], ...],
  log_partition.
* `deletions.jsonl`: what coordinators removed: `what` GROUP or OFFSET, group, topic, partition, log, and `why`:
  TOPIC_DELETED, GROUP_DELETED, EXPIRED, or null if a group of another protocol replaced it.
* `request_timeouts.jsonl`: requests that a client gave up without an answer: group, client_id, operation, and how long
  it had waited (`waited_ms`).
* `requests.jsonl`: where it was asked for (`--exchange`), every request to a broker, when it is answered: number (in
  the order in which requests reach brokers), asked_ms, client_id (null where a broker asks another one: from_broker),
  broker, group, api, version (null: unknown), request and response with Kafka's field names (bytes in base64;
  ShareFetch has the names of topics in place of their ids), error (NONE; REQUEST_TIMED_OUT: the broker failed; null:
  not answered by the end), waited_ms on the broker. Heartbeats that were left out are a line with their `count`, the
  last one at `last_ms`.
* `states.jsonl`: with it, every change of a state: group, kind and name (`group` and `member` in the coordinator,
  `client`, `share partition` on the broker that leads it, `share state` of it in the share coordinator: its epochs),
  from, to, and `why`: the request, the timer, or the event that led to it. NONE: it does not exist.
* `transactions.jsonl`: producer_id, producer_epoch, outcome COMMITTED or ABORTED, log: the marker.
* Share groups, each line with group, topic, partition, first_offset and last_offset (inclusive):
  `deliveries.jsonl`: records that were acquired for a member: client_id, delivery_count.
  `acknowledgements.jsonl`: client_id, acknowledge_type, error (Kafka's exception class, or null: it took effect).
  `lock_timeouts.jsonl`: member_id.
  `archived.jsonl`: given up for good: why (REJECTED, DELIVERY_LIMIT, RETENTION, GAP), delivery_count.
  `dead_letters.jsonl`: copied to a dead letter topic: delivery_count, message, dead_letter_topic, log: [its partition,
  offset of the first copy], error (null: copied).
  `share_writes.jsonl`: state that the share coordinator wrote: start_offset, cause, state_batches.
* `end.jsonl`: the state of the group coordinators when the clock stopped: group, state (the dump of
  `GroupCoordinator`). `end_share.jsonl`: that of the share coordinators: group, topic_id, partition, state_epoch,
  start_offset, state_batches.

What is simplified: there are no payloads; consumers read at a steady rate, so `owners` has ranges and no single polls;
`__cluster_metadata` and `__transaction_state` are on one broker that never fails; controllers elect after a fixed time.
Of the transactions that fill data topics, `__transaction_state` has those that a log cleaner leaves which comes often.
The metadata hash of groups contains no racks. Members of streams groups report no offsets of their tasks, standby tasks
have no state, and brokers of 4.4 assign no warm-up tasks (as 4.4.0). A leader that is loading while a topic is deleted
keeps the offsets of that topic. If two session timers of one group end in the same millisecond, they may be reported in
another order when heartbeats are left out.
"""
