"""The clients of a simulation: pure state machines `(event) -> actions`.

A client does no I/O and reads no clock. Its process (`simulate.process`) passes it the events in the order of time, and
performs the actions that it returns:

    actions = client.handle(event, now_ms)

`machine` has the events and the actions. A crash is no event: the process drops the client. While a process is paused,
it keeps events for later.

Every request is answered once: if the broker is down, with the error REQUEST_TIMED_OUT. The client must ignore answers
to requests of an older generation.

One module per kind: `classic` (classic consumer), `consumer` (consumer protocol), `streams` (a thread of an
application, based on `consumer`), `share`, `producer` (transactions, inside one of the first two). `member` is their
common base. Consumers of both protocols share `reader`, which handles the partitions that they own.
"""
