"""Clients, as far as a simulation needs them: pure state machines `(event) -> actions`.

A client does no I/O and reads no clock. The world hands it events in the order of time; each gives a list of actions:

    actions = client.handle(event, now_ms)

Events: `Started`; `Answered(tag, answer)` with the answer to a request, or the error in its place; `TimerFired(name)`;
`Ordered(order)`, what the scenario makes it do: stop (close as a good client does), crash, pause and resume, slow poll.
After a crash the world hands it nothing more.

Actions: `Send(service, key, operation, request, tag)`: a request to the coordinator of `key`; `SetTimer(name, at_ms)`, which
replaces the timer of that name; `CancelTimer(name)`; `Tell(file, facts)`: a line of the truth; `Beat(...)`: from now on a
heartbeat every so often, which the world may leave out while the group is quiet.

A request is answered once, or with `Lost`: no answer came in `request.timeout.ms`. Answers to a request whose tag the
client no longer expects are to be passed over, as a real client does with its older generations.

One file a kind: `classic.py` (classic consumer), `consumer.py` (consumer protocol), `share.py`, `producer.py`.
"""
