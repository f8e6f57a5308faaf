"""The live group coordinator of one `__consumer_offsets` partition: it takes requests, keeps timers, writes records.

Theory of operation
-------------------
`shard.GroupCoordinator` holds

* `shard`, the immutable `CoordinatorShard` of `coordinator_core.replay`. Only replay of appended records changes it;
* what no record tells, all of it lost at a reload: `classic_groups` (`LiveClassicGroup`, Kafka's ClassicGroup), the
  timers, the queued background tasks, and `live(Kind)`, one object of any class that a group type brings along.

A *command* is a function `(context, request) -> Result` (see `operation`). It reads, decides, and returns the records
to write and the response; or it raises `Refused`, and the request is answered with that error. The frame then

1. appends the records (one operation: consecutive offsets, one timestamp) and replays them;
2. calls `Result.on_append(context, None)`, or `on_append(context, error)` where the log refused; then nothing was
   replayed, and the answer is the error (`answer_for_append_error`), unless the command has no response: then
   `on_append` answers;
3. returns an `Outcome`: response or error, records with their offsets, and `completed`, the answers which became
   available, to whatever request, in this step (`context.complete(request_id, response)`).

What needs no state is checked before (`service.refusal`), as on the broker that takes the request.

A command whose answer comes later (JoinGroup, SyncGroup) has no response: it keeps `context.request_id` and completes
it. Clock and randomness come in with each call: `now_ms`, `new_uuid`.

Live state of classic groups is ahead of the shard, as in Kafka: JoinGroup changes the group at once and writes nothing.
Ask `context.group(group_id)` for the group of an id; it gives the `LiveClassicGroup` of a classic group. After an
operation the frame makes live groups for classic groups which came with its records, and forgets those whose group went
away or changed its type.

How to add a group type
-----------------------
Write `<type>/commands.py` with one `group_module.GroupModule`, and name it in `modules.MODULES`. A `GroupModule` has

* `commands`: operation name -> command. Operations have the names of Kafka's coordinator calls in snake case
  (`consumer_group_heartbeat`); requests and responses are dataclasses (`messages.message_of`, `messages.json_of`);
* `timers`: timer name -> function `(context, *arguments) -> Result`, run exactly at the deadline given to
  `context.schedule(key, delay_ms, name, *arguments)`; `context.cancel(key)`;
* `tasks`: task name -> function `(context, *arguments) -> Result`, run by `GroupCoordinator.run_tasks` in the order of
  `context.schedule_task(key, name, *arguments)`; a key which is queued already is not queued again;
* `on_loaded`: `(context) -> None`, after a (re)load: set the timers of what was loaded;
* `on_unloaded`: `(context) -> None`, before another broker takes over: answer who waits;
* `on_metadata`: `(context, changed topic names) -> None`, after `GroupCoordinator.update_metadata`;
* `rules`: class of the group's state -> `GroupRules`, what the operations which all types share (offsets, deletion,
  lists) ask of a group. An operation on a group without rules raises `UnknownOperation`;
* `add_to_dump`: `(coordinator, group id -> dump) -> None`, puts in what no record tells.

A command which turns a classic group into one of another type answers those who wait first
(`classic.commands.answer_all`). One which makes a group classic puts the `LiveClassicGroup`, with its members, into
`coordinator.classic_groups` before it returns the records; it then outlives them. `consumer.conversion.put_in_place` is
how: members' sessions and the rebalance begin there, and `put_back` takes the group away where the log refuses.

Where an operation belongs to another module by the type of the group (JoinGroup on a consumer group), the owning
module asks `context.command("classic_join_consumer_group")`, which the other module provides.

The dump of a coordinator (`GroupCoordinator.dump`) is `state_dump.dump_shard`, with the live picture of classic groups
in the place of the persisted one, and what modules add.
"""
