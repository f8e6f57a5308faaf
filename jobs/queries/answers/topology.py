"""Topologies of streams groups, as described by their clients (KIP-1331), in the format of kafka-streams-groups.

A plugin of the broker stores the description, and no log has it: it comes from a live cluster (Kafka 4.4).
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TextIO

from coordinator_core.bytes.codec import Struct
from coordinator_core.replay.java.hash_codes import string_order
from jobs.console.names import or_some
from jobs.console.output import Value, printable, write_answers
from jobs.errors import ArgumentError
from jobs.settings import Settings
from jobs.sources.admin import Admin
from jobs.sources.admin_answers import GroupDescription, Refusal, TopologyStatus
from jobs.sources.admin_questions import GROUP_ID_NOT_FOUND
from jobs.sources.broker import Broker
from schemas.group_types import GroupType

SOURCE: Final = 1
PROCESSOR: Final = 2
NODE_TYPES: Final[Mapping[int, str]] = {SOURCE: "Source", PROCESSOR: "Processor", 3: "Sink"}
COLUMNS: Final = (
    *("GROUP", "TOPOLOGY-EPOCH", "SUBTOPOLOGY", "IS-GLOBAL", "NODE", "TYPE"),
    *("TOPICS", "STORES", "SUCCESSORS", "PREDECESSORS"),
)
REMARKS: Final[Mapping[TopologyStatus, str]] = {
    TopologyStatus.NOT_REQUESTED: "its broker sends no topology description: brokers do since Kafka 4.4",
    TopologyStatus.NOT_STORED: "no topology description is stored: the broker has no plugin for them, or received none",
    TopologyStatus.ERROR: "its broker could not fetch the topology description: see the broker's log",
}


def topologies(broker: Broker, group_ids: Sequence[str] | None) -> dict[str, GroupDescription | Refusal]:
    """Descriptions of streams groups; without `group_ids` of all groups of a cluster. Raises BrokerError."""
    admin = Admin(broker)
    if group_ids is None:
        group_ids = [name for name, it in admin.list_groups().items() if it.group_type == GroupType.STREAMS]
    return admin.describe_groups(dict.fromkeys(sorted(group_ids, key=string_order), GroupType.STREAMS))


def run_topology(
    settings: Settings, *, group_ids: Sequence[str] | None, output_format: str, out: TextIO | None = None
) -> list[str]:
    """Request and print the topologies.

    Returns sentences about groups without one. Raises ArgumentError for an unknown group, and BrokerError.
    """
    out = out or sys.stdout
    address = settings.broker_address
    assert address is not None
    with Broker.connect(address, timeout_ms=settings.request_timeout_ms) as broker:
        answers = topologies(broker, group_ids)
        missing = [name for name, it in answers.items() if isinstance(it, Refusal) and it.code == GROUP_ID_NOT_FOUND]
        if missing and group_ids is not None:
            known = Admin(broker).list_groups()
            names = ", ".join(or_some(name, known) for name in missing)
            raise ArgumentError(f"there is no group {names} in the cluster")
    described, remarks = [], []
    for group_id, answer in answers.items():
        if isinstance(answer, GroupDescription) and answer.topology_description is not None:
            described.append(answer)
        else:
            remarks.append(f"{printable(group_id)}: {_why_not(answer)}")
    if output_format != "table":
        rows = [row for it in described for row in _rows(it)]
        write_answers(COLUMNS, [tuple(row[name] for name in COLUMNS) for row in rows], output_format, out)
    for it in described if output_format == "table" else ():
        if len(answers) > 1:
            out.write(f"Streams group '{printable(it.group_id)}'\n")
        out.write(formatted(it.topology_description) + "\n")
    return remarks or ([] if answers else ["the cluster has no streams group"])


def _why_not(answer: GroupDescription | Refusal) -> str:
    if isinstance(answer, Refusal):
        return answer.why
    if answer.group_type != GroupType.STREAMS:
        return f"it is not a streams group, but {answer.group_type}"
    return REMARKS[answer.topology_status]


def formatted(description: Any) -> str:
    """A description in the format of Kafka's TopologyDescriptionFormatter."""
    return "".join(_text(description))


def _text(description: Struct) -> Iterator[str]:
    yield "Topologies:\n"
    for subtopology_id, is_global, nodes in _parts(description):
        about = " for global store (will not generate tasks)" if is_global else ""
        yield f"   Sub-topology: {printable(subtopology_id)}{about}\n"
        before = _predecessors(nodes)
        for node in nodes:
            yield f"    {_node_text(node, before[node.name])}\n"
        yield "\n"


def _node_text(node: Struct, predecessors: Iterable[str]) -> str:
    to, of = f"\n      --> {_names(node.successors)}", f"\n      <-- {_names(predecessors)}"
    title = f"{NODE_TYPES.get(node.node_type, node.node_type)}: {printable(node.name)}"
    if node.node_type == SOURCE:
        return f"{title} (topics: [{_joined(node.source_topics)}]){to}"
    if node.node_type == PROCESSOR:
        return f"{title} (stores: [{_joined(node.stores)}]){to}{of}"
    return f"{title} (topic: {'null' if node.sink_topic is None else printable(node.sink_topic)}){of}"


def _rows(group: GroupDescription) -> Iterator[dict[str, Value]]:
    for subtopology_id, is_global, nodes in _parts(group.topology_description):
        before = _predecessors(nodes)
        for node in nodes:
            topics = node.source_topics if node.sink_topic is None else (node.sink_topic,)
            yield {
                "GROUP": group.group_id,
                "TOPOLOGY-EPOCH": group.topology_epoch,
                "SUBTOPOLOGY": subtopology_id,
                "IS-GLOBAL": is_global,
                "NODE": node.name,
                "TYPE": NODE_TYPES.get(node.node_type, str(node.node_type)).upper(),
                "TOPICS": _joined(topics),
                "STORES": _joined(node.stores),
                "SUCCESSORS": _joined(node.successors),
                "PREDECESSORS": _joined(before[node.name]),
            }


def _parts(description: Any) -> Iterator[tuple[str, bool, Sequence[Struct]]]:
    """Yield subtopologies and global stores, with consecutive numbers: id, whether it is a global store, nodes."""
    for it in description.subtopologies:
        yield it.subtopology_id, False, it.nodes
    for number, it in enumerate(description.global_stores, len(description.subtopologies)):
        yield str(number), True, (it.source, it.processor)


def _predecessors(nodes: Sequence[Struct]) -> Mapping[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        for successor in node.successors:
            found[successor].add(node.name)
    return found


def _names(names: Iterable[str]) -> str:
    return _joined(names) or "none"


def _joined(names: Iterable[str]) -> str:
    return ", ".join(map(printable, sorted(set(names), key=string_order)))
