"""Simulation: what `simulate --exchange` writes about a cluster that never was. No other job reads these tables."""

from dataclasses import replace
from functools import partial

from schemas.tables import common
from schemas.tables.common import key
from schemas.tables.declare import BIGINT, INT, STRING, TIMESTAMP, Column, Table

simulation_table = partial(Table, "simulation")

CLUSTER_ID = key("cluster_id", STRING, "Name of the scenario.")
NUMBER = key("number", BIGINT, "Number of the line: of requests, in the order in which they reached brokers.")
GROUP_ID = replace(common.GROUP_ID, is_key=False)

REQUESTS = simulation_table(
    name="requests",
    comment="One row per request to a broker and its answer, as in truth/requests.jsonl. Heartbeats that were left out "
    "of the simulation are one row with their count.",
    columns=(
        CLUSTER_ID,
        NUMBER,
        GROUP_ID,
        Column("asked_at", TIMESTAMP, "When it reached the broker."),
        Column("answered_at", TIMESTAMP, "When the broker answered it; null: not by the end."),
        Column("waited_ms", BIGINT, "How long it waited on the broker; null: it was not answered, or not sent."),
        Column("client_id", STRING, "Client that asks; null: another broker does."),
        Column("from_broker", INT, "Broker that asks; null: a client does."),
        Column("broker", INT, "Broker that is asked; null: the client does not know it yet."),
        Column("api", STRING, "Kafka's name of the API."),
        Column("version", INT, "Version of the API; null: the model has none."),
        Column("request", STRING, "Fields of the request in JSON, with Kafka's names."),
        Column("response", STRING, "Fields of the answer in JSON; null: none, or without news."),
        Column("error", STRING, "NONE, or Kafka's name of the error; null: not answered by the end."),
        Column("count", BIGINT, "Number of such requests."),
        Column("last_at", TIMESTAMP, "Of several: when the last one reached the broker; null: it is one."),
    ),
)

STATES = simulation_table(
    name="states",
    comment="One row per change of a state, as in truth/states.jsonl.",
    columns=(
        CLUSTER_ID,
        NUMBER,
        GROUP_ID,
        Column("changed_at", TIMESTAMP, "When it changed."),
        Column("kind", STRING, "group, member, client, share partition (on its leader) or share state (persisted)."),
        Column("name", STRING, "Group id, member id, client id, or partition."),
        Column("from_state", STRING, "The state before; NONE: there was none."),
        Column("to_state", STRING, "The state after; NONE: it is gone."),
        Column("why", STRING, "Request, timer or event that led to it."),
    ),
)

SIMULATION_TABLES = (REQUESTS, STATES)
