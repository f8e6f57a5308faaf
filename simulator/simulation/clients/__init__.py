"""The clients of a simulation: pure state machines `(event) -> actions`.

A client does no I/O and reads no clock. Its process (`simulate.process`) passes it the events in the order of time, and
performs the actions that it returns:

    actions = client.handle(event, now_ms)

Events (`machine.Event`): `Started`; `Answered(tag, response, error, request)`; `TimerFired(name)`; `Stop`: close
properly, until the client returns `Closed`; `SlowPoll(duration_ms)`; `TopicsChanged`; `Subscribe(topics)`. A crash is
no event: the process drops the client. While a process is paused, it keeps events for later.

Actions (`machine.Action`): `Send(service, key, operation, request, tag, api_version)`; `SetTimer(name, delay_ms)`,
which replaces the timer of that name; `CancelTimer(name)`; `Heartbeat(interval_ms)`: from now on `client.heartbeat()`
is sent once per interval, unless it is left out because the group is quiet; `Took` and `Gave`: the partitions that the
client believes it owns; `Closed`.

Every request is answered once: if the broker is down, with the error REQUEST_TIMED_OUT. The client must ignore answers
to requests of an older generation.

One module per kind: `classic` (classic consumer), `consumer` (consumer protocol), `streams` (a thread of an
application, based on `consumer`), `share`, `producer` (transactions, inside one of the first two). `member` is their
common base. Consumers of both protocols share `reader`, which handles the partitions that they own.
"""
