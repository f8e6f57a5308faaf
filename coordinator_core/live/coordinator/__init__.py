"""The live group coordinator of one `__consumer_offsets` partition: it serves requests, runs timers, writes records.

How it works
------------
`shard.GroupCoordinator` holds

* `shard`, the immutable `CoordinatorShard` of `coordinator_core.replay.dispatch`. Only replay of appended records
  changes it;
* state that is in no record and is lost at a reload: `classic_groups` (`LiveClassicGroup`, Kafka's ClassicGroup), the
  timers, the queued background tasks, and `live(Kind)`, one object for any class that a group type uses.

A *command* is a function `(context, request) -> Result` (see `operation`). It reads, decides, and returns the records
to write and the response; or it raises `Refused`, which becomes the error of the response. The coordinator then

1. appends the records (one operation: consecutive offsets, one timestamp) and replays them;
2. calls `Result.on_append(context, None)`, or `on_append(context, error)` if the log refused; then nothing was
   replayed, and the response is the error (`answer_for_append_error`), unless the command has no response: then
   `on_append` answers;
3. returns an `Outcome`: response or error, records with their offsets, and `completed`, the responses to any requests
   that were completed in this step (`context.complete(request_id, response)`).

Checks that need no state come first (`service.refusal`), as on the broker that receives the request.

A command that responds later (JoinGroup, SyncGroup) returns no response: it stores `context.request_id` and completes
it. Time and randomness are arguments of each call: `now_ms`, `new_uuid`.

Live state of classic groups is ahead of the shard, as in Kafka: JoinGroup changes the group immediately and writes
nothing. `context.group(group_id)` returns the group of an id, for a classic group its `LiveClassicGroup`. After an
operation the coordinator creates live groups for new classic groups in its records, and drops those whose group was
deleted or changed its type.

How to add a group type
-----------------------
Write `<type>/commands.py` with one `group_module.GroupModule`, and add it to `modules.MODULES`. A `GroupModule` has

* `commands`: operation name -> command. Operations have the names of Kafka's coordinator calls in snake case
  (`consumer_group_heartbeat`); requests and responses are dataclasses;
* `timers`: timer name -> function `(context, *arguments) -> Result`, run exactly at the deadline given to
  `context.schedule(key, delay_ms, name, *arguments)`; `context.cancel(key)`;
* `tasks`: task name -> function `(context, *arguments) -> Result`, run by `GroupCoordinator.run_tasks` in the order of
  `context.schedule_task(key, name, *arguments)`; a key that is queued already is not queued again;
* `on_loaded`: `(context) -> None`, after a (re)load: set the timers of the loaded groups;
* `on_unloaded`: `(context) -> None`, before another broker takes over: answer waiting requests;
* `on_metadata`: `(context, changed topic names) -> None`, after `GroupCoordinator.update_metadata`;
* `rules`: class of the group's state -> `GroupRules`, the rules for operations on all group types (offsets, deletion,
  lists). An operation on a group without rules raises `UnknownOperation`;
* `add_to_dump`: `(coordinator, group id -> dump) -> None`, adds state that is in no record.

A command that converts a classic group to another type first answers waiting requests (`classic.commands.answer_all`).
One that converts a group to classic puts the `LiveClassicGroup`, with its members, into `coordinator.classic_groups`
before it returns the records, so that it is kept when they are replayed. `consumer.conversion.put_in_place` does this:
members' sessions and the rebalance begin there, and `put_back` removes the group if the log refuses the records.

Where another module must serve an operation because of the group's type (JoinGroup on a consumer group), the owning
module calls `context.command("classic_join_consumer_group")`, which the other module provides.

The dump of a coordinator (`GroupCoordinator.dump`) is `state_dump.dump_shard`, with the live state of classic groups
instead of the persisted one, and with additions of modules.
"""
