"""A broker's coordinators: state machines over replicated logs (CoordinatorRuntime). The clock is an argument.

Who calls what
--------------
From the bottom up. Every call that needs the time takes `now_ms`, and nothing here uses random numbers.

`partition.PartitionLog(topic, partition, replicas, min_insync_replicas, ...)`: one partition with a replica on each of
some brokers, all of which store real record batches. It belongs to the cluster, and outlives brokers and runtimes.

* `append(broker_id, batch)` is for the leader: it raises `Refused` (NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS,
  MESSAGE_TOO_LARGE), and then nothing was written; otherwise it returns the end offset.
* `fetch(follower_id)` is one fetch of a follower: its fetch offset may move the leader's high watermark, and it copies
  missing batches. An appended batch is committed after two fetches of each in-sync follower; `replicate()` does as many
  as needed, for callers that do not simulate the time between.
* `shrink_isr(broker_id)`, `elect(broker_id)`, `elect_next(alive)`: decisions of a controller (`fetch` expands the ISR).
  An election raises the leader epoch; replicas that fetch afterwards truncate to the new leader's log (KIP-101). What
  only the old leader had is lost.
* `high_watermark`, `leader`, `leader_epoch`, `batches()`, `end_offset`.

`runtime.CoordinatorRuntime(broker_id, kind, config, image)`: the coordinators of one broker for one topic, one for each
partition. `kind` is the type of coordinator: `machines.GroupMachines(config)` for `__consumer_offsets`,
`share_machines.ShareMachines(config)` for `__share_group_state`.

* `load(log, now_ms=, duration_ms=0)`: the broker became leader of `log`. The coordinator is LOADING until `duration_ms`
  have passed, then ACTIVE, or FAILED if the log cannot be replayed.
* `unload(partition, leader_epoch, now_ms=)`: another broker took over, or (epoch None) the topic was deleted.
* `submit(partition, Request)` puts an operation into the queue of its partition; `run(now_ms)` runs everything that is
  queued or due (writes, reads, timers, linger, write timeouts, moves of the high watermark), and returns the `Answer`s
  that became available. `handle(partition, request, now_ms=)` does both. Operations submitted before one `run` may
  share a batch.
* `next_deadline_ms()`: when `run` next has something to do without a new request, or None. After a `fetch` that moved a
  high watermark, `run` has something to do immediately (`has_work`).
* `update_metadata(image, changed_topics)` updates every coordinator at the next `run`. A transaction marker is an
  operation too, `EndTransaction`.

A request to a partition that is LOADING is answered with COORDINATOR_LOAD_IN_PROGRESS; if the broker does not
coordinate it, or loading failed, with NOT_COORDINATOR. A write is answered when its records are below the high
watermark, and an answer without records waits for the writes before it. If the log refuses a batch, the state before
the batch is restored, and all operations of the batch are answered with the error. A write whose records are not
committed within `write_timeout_ms` is answered with COORDINATOR_NOT_AVAILABLE; its records stay.

A crash needs no call: drop the runtime; pending requests get no answer. On the next leader `load` restores what is in
the log and restarts timers. Waiting joins, and timers and classic generations that were not written, are lost.

`log.write.segment_files(...)` returns the files of a partition folder like a broker's; nothing here opens a file.

Modules: `messages` (requests and answers), `states` (the states of a coordinator and the table of their transitions),
`replica`, `partition`, `batching` (records of several operations in one batch), `deferred` (answers that wait for the
high watermark), `machines`, `share_machines`, `loader`, `coordinator` (one partition), `runtime` (all of a broker).
"""
