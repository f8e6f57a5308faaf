"""A broker's coordinators: state machines over replicated logs (CoordinatorRuntime). The clock is an argument.

Who calls what
--------------
From the bottom up; every call which needs the time takes `now_ms`, and nothing here draws a random number.

`partition.PartitionLog(topic, partition, replicas, min_insync_replicas, ...)`: one partition with a replica on each of
some brokers, all of which hold real record batches. It is the cluster's, and outlives brokers and runtimes.

* `append(broker_id, batch)` is the leader's: raises `Refused` (NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS,
  MESSAGE_TOO_LARGE) and then nothing was written; else gives the end offset.
* `fetch(follower_id)` is one fetch of a follower: it tells the leader how far the follower is, which may move the high
  watermark, and copies what is missing. What was appended is committed after two fetches of each in-sync follower;
  `replicate()` does as many as needed, for callers who do not care for the time between.
* `shrink_isr(broker_id)`, `elect(broker_id)`, `elect_next(alive)`: what a controller decides (`fetch` expands the ISR).
  An election raises the leader epoch; replicas which then fetch truncate to what the new leader has (KIP-101). What
  only the old leader had is lost.
* `high_watermark`, `leader`, `leader_epoch`, `batches()`, `end_offset`.

`runtime.CoordinatorRuntime(broker_id, kind, config, image)`: the coordinators of one broker for one topic, one a
partition. `kind` says which: `machines.GroupMachines(config)` for `__consumer_offsets`,
`share_machines.ShareMachines(config)` for `__share_group_state`.

* `load(log, now_ms=, duration_ms=0)`: the broker became leader of `log`. The coordinator is LOADING until `duration_ms`
  have passed, then ACTIVE, or FAILED where the log cannot be replayed.
* `unload(partition, leader_epoch, now_ms=)`: another broker took over, or (epoch None) the topic is gone.
* `submit(partition, Request)` puts an operation into the queue of its partition; `run(now_ms)` runs all that is queued
  or due (writes, reads, timers, linger, write time-outs, moves of the high watermark), and gives the `Answer`s which
  became available. `handle(partition, request, now_ms=)` is both. What is submitted before one `run` may share a batch.
* `next_deadline_ms()`: when `run` has something to do of its own accord, or None. After a `fetch` which moved a high
  watermark, `run` has something to do at once (`has_work`).
* `update_metadata(image, changed_topics)` tells every coordinator at the next `run`. A transaction marker is an
  operation too, `EndTransaction`.

A request to a partition which is LOADING is answered COORDINATOR_LOAD_IN_PROGRESS; where the broker does not coordinate
it, or loading failed, NOT_COORDINATOR. The answer to a write comes when its records are below the high watermark, and
an answer without records waits for the writes before it. Where the log refuses a batch, the state is again what it was
before the batch, and all operations of the batch are answered with the error. A write whose records are not committed
within `write_timeout_ms` is answered COORDINATOR_NOT_AVAILABLE; its records stay.

A crash needs no call: forget the runtime; pending requests get no answer. On the next leader `load` brings back what
the log has and restarts timers: joins which were parked, timers and classic generations which were not written are
gone.

`log.write.segment_files(...)` gives the files of a partition folder as a broker has them; nothing here opens a file.

Modules: `messages` (what goes in and comes out), `states` (the states of a coordinator and their one table of
transitions), `replica`, `partition`, `batching` (records of several operations in one batch), `deferred` (answers which
wait for the high watermark), `machines`, `share_machines`, `loader`, `coordinator` (one partition), `runtime` (all of a
broker).
"""
