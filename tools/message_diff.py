"""What changed of the records of Kafka's coordinators between two releases.

python -m tools.message_diff OLD NEW    each is a jar of Kafka (kafka-group-coordinator-4.4.0.jar and its like: their
                                        records' definitions are in it), a folder of definitions (*.json), or a file of
                                        the form of tests/data/messages.json
python -m tools.message_diff NEW        against what this version of Groupledger declares (tests/data/messages.json)

One line a difference, and exit code 1 where there is one. A new message or field needs a declaration in `schemas`.
"""

import json
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

DECLARED: Final = Path(__file__).resolve().parent.parent / "tests" / "data" / "messages.json"
"""Kafka's definitions with which the declarations are tested."""
JAR_FOLDER: Final = "common/message/"
COMMENT: Final = re.compile(r"^\s*//.*$", re.MULTILINE)
RECORD_KINDS: Final = frozenset({"key", "value", "coordinator-key", "coordinator-value", "data"})
"""Kinds of records; requests and responses are others."""

Json = Mapping[str, Any]
Message = dict[str, str]
"""`versions`, and for each field path a description that can be compared."""


class UnreadableDefinitions(Exception):
    """The path has no message definitions."""


def messages_of(path: Path) -> dict[str, Message]:
    """Message name -> its description. Raises UnreadableDefinitions."""
    try:
        if path.is_dir():
            texts = [file.read_text() for file in sorted(path.glob("**/*.json"))]
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as jar:
                names = [name for name in jar.namelist() if name.startswith(JAR_FOLDER) and name.endswith(".json")]
                texts = [jar.read(name).decode() for name in names]
        else:
            texts = [path.read_text()]
        found = [message for text in texts for message in _definitions(json.loads(COMMENT.sub("", text)))]
    except (OSError, ValueError) as error:
        raise UnreadableDefinitions(f"{path}: {error}; give a jar of Kafka, a folder or a messages.json") from error
    records = {message["name"]: _message(message) for message in found if _kind(message) in RECORD_KINDS}
    if not records:
        raise UnreadableDefinitions(f"{path} holds no definitions of records; give the jar of a coordinator")
    return records


def _definitions(node: Any) -> Sequence[Json]:
    if not isinstance(node, Mapping):
        return ()
    found: Sequence[Json] = node.get("messages", (node,))
    return [message for message in found if "name" in message and "fields" in message]


def _kind(message: Json) -> str:
    kind: str = message.get("kind") or message.get("type", "")
    return kind


def _message(message: Json) -> Message:
    valid = _range(message["validVersions"], None)
    flexible = _range(message.get("flexibleVersions"), valid)
    return {
        "versions": f"{_text(valid)}, flexible {_text(flexible)}",
        **dict(
            _fields(message["fields"], valid, "", {each["name"]: each for each in message.get("commonStructs", ())})
        ),
    }


def _fields(fields: Sequence[Json], valid: range, path: str, structs: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    for field in fields:
        name = path + field["name"][:1].lower() + field["name"][1:]
        versions = [f"versions {_text(_range(field.get('versions', field.get('taggedVersions')), valid))}"]
        if field.get("taggedVersions"):
            versions.append(f"tag {field['tag']} in versions {_text(_range(field['taggedVersions'], valid))}")
        if field.get("nullableVersions"):
            versions.append(f"null in versions {_text(_range(field['nullableVersions'], valid))}")
        yield name, f"{field['type']}, {', '.join(versions)}"
        inner = field.get("fields") or structs.get(field["type"].removeprefix("[]"), field.get("struct", {})).get(
            "fields"
        )
        yield from _fields(inner or (), valid, f"{name}.", structs)


def _range(versions: Any, valid: range | None) -> range:
    """Versions in Kafka's notation ("0-3", "2+", "none"), or as first and last version."""
    last = valid[-1] if valid else 0
    if versions is None or versions == "none":
        return range(0)
    if isinstance(versions, str):
        first, _, end = versions.partition("-")
        bounds = (int(first.rstrip("+")), last if versions.endswith("+") else int(end or first))
    else:
        bounds = (versions[0], versions[1])
    return range(max(bounds[0], valid[0]) if valid else bounds[0], min(bounds[1], last) + 1 if valid else bounds[1] + 1)


def _text(versions: range) -> str:
    return f"{versions[0]}-{versions[-1]}" if versions else "none"


def differences(old: Mapping[str, Message], new: Mapping[str, Message], *, only_common: bool = False) -> list[str]:
    """One line each.

    `only_common`: ignore messages that only one side has, since a jar has the records of one module.
    """
    lines = []
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            lines += [] if only_common else [f"{name}: is gone"]
        elif name not in old:
            lines.append(f"{name}: is new, versions {new[name]['versions']}")
        else:
            lines += [f"{name}: {line}" for line in _changes(old[name], new[name])]
    return lines


def _changes(old: Message, new: Message) -> Iterator[str]:
    for field in dict.fromkeys((*old, *new)):
        if field not in new:
            yield f"{field} is gone ({old[field]})"
        elif field not in old:
            yield f"{field} is new: {new[field]}"
        elif old[field] != new[field]:
            yield f"{field} was {old[field]}, is {new[field]}"


def main(arguments: Sequence[str]) -> int:
    """Print the differences. Returns the exit code."""
    if len(arguments) not in {1, 2}:
        print(__doc__, file=sys.stderr)
        return 2
    paths = [DECLARED, *map(Path, arguments)][-2:]
    try:
        old, new = map(messages_of, paths)
    except UnreadableDefinitions as error:
        print(error, file=sys.stderr)
        return 2
    lines = differences(old, new, only_common=len(arguments) == 1)
    print("\n".join(lines) if lines else f"{len(old.keys() & new.keys())} records are the same")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
