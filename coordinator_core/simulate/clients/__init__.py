"""Clients, as far as a simulation needs them: pure state machines `(event) -> actions`.

A client does no I/O and reads no clock. Its process (`simulate.process`) hands it events in the order of time, and does
what it answers:

    actions = client.handle(event, now_ms)

Events (`machine.Event`): `Started`; `Answered(tag, response, error, request)`; `TimerFired(name)`; `Stop`: close as a
good client does, until it says `Closed`; `SlowPoll(duration_ms)`; `TopicsChanged`; `Subscribe(topics)`. A crash is no
event: the client is dropped. While its process is paused events are kept for later.

Actions (`machine.Action`): `Send(service, key, operation, request, tag, api_version)`; `SetTimer(name, delay_ms)`,
which replaces the timer of that name; `CancelTimer(name)`; `Heartbeat(interval_ms)`: from now on `client.heartbeat()`
is sent every so often, unless it is left out while the group is quiet; `Took` and `Gave`: what it believes to own;
`Tell`: another line of the truth; `Closed`.

Every request is answered once: where the broker is gone, with the error REQUEST_TIMED_OUT. Answers to requests of an
older generation are for the client to pass over.

One file a kind: `classic` (classic consumer), `consumer` (consumer protocol), `streams` (a thread of
an application, as `consumer`), `share`, `producer` (transactions, inside
one of the first two). Consumers of both protocols share `reader`, what they do with the partitions that they own, and
`offsets`, what they say of offsets.
"""
