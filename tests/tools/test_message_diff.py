"""What changed of Kafka's records between two releases is said, from jars, folders and lists of definitions alike."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tools.message_diff import DECLARED, UnreadableDefinitions, differences, main, messages_of

KAFKAS: dict[str, Any] = {
    "type": "coordinator-value",
    "name": "StreamsGroupMetadataValue",
    "validVersions": "0",
    "flexibleVersions": "0+",
    "fields": [
        {"name": "Epoch", "versions": "0+", "type": "int32"},
        {"name": "MetadataHash", "versions": "0+", "type": "int64"},
        {"name": "ValidatedTopologyEpoch", "versions": "0+", "taggedVersions": "0+", "tag": 0, "type": "int32"},
        {
            "name": "LastAssignmentConfigs",
            "nullableVersions": "0+",
            "taggedVersions": "0+",
            "tag": 1,
            "type": "[]LastAssignmentConfig",
        },
    ],
    "commonStructs": [
        {
            "name": "LastAssignmentConfig",
            "versions": "0+",
            "fields": [
                {"name": "key", "type": "string", "versions": "0+"},
                {"name": "value", "type": "string", "versions": "0+"},
            ],
        }
    ],
}
"""As Kafka 4.3 defines it."""
LATER = ["storedDescriptionTopologyEpoch", "failedDescriptionTopologyEpoch"]


def as_folder(root: Path, message: dict[str, Any]) -> Path:
    root.mkdir()
    (root / "Value.json").write_text(f"// a licence\n{json.dumps(message)}")
    return root


def as_jar(root: Path, message: dict[str, Any]) -> Path:
    root.mkdir()
    with zipfile.ZipFile(root / "kafka.jar", "w") as jar:
        jar.writestr("common/message/Value.json", f"  // a licence\n{json.dumps(message)}")
        jar.writestr("other.json", "[]")
    return root / "kafka.jar"


@pytest.mark.parametrize("form", [as_folder, as_jar])
def test_what_a_release_does_not_have_yet_is_named(form: Any, tmp_path: Path) -> None:
    """The fields that 4.4 brought, and nothing else; records of other modules are no difference."""
    lines = differences(messages_of(form(tmp_path / "old", KAFKAS)), messages_of(DECLARED), only_common=True)
    fields = [line for line in lines if line.startswith("StreamsGroupMetadataValue: ")]
    assert [line.split()[1] for line in fields] == LATER
    assert all("is new: int32, versions 0-0, tag" in line for line in fields)
    assert all(line.split(": ")[1].startswith("is new") for line in lines if line not in fields)


def test_every_kind_of_change_has_a_line(tmp_path: Path) -> None:
    """A field that goes, comes or is written otherwise; versions; messages."""
    renamed = [{**KAFKAS["fields"][0], "name": "Era"}, {**KAFKAS["fields"][1], "type": "int32"}, *KAFKAS["fields"][2:]]
    changed = {**KAFKAS, "validVersions": "0-1", "fields": renamed}
    old, new = messages_of(as_folder(tmp_path / "a", KAFKAS)), messages_of(as_folder(tmp_path / "b", changed))
    lines = "\n".join(differences(old, new))
    assert "versions was 0-0, flexible 0-0, is 0-1, flexible 0-1" in lines
    assert "epoch is gone (int32, versions 0-0)" in lines
    assert "era is new: int32, versions 0-1" in lines
    assert "metadataHash was int64, versions 0-0, is int32, versions 0-1" in lines
    assert differences(old, {}) == ["StreamsGroupMetadataValue: is gone"]
    assert differences({}, old) == ["StreamsGroupMetadataValue: is new, versions 0-0, flexible 0-0"]


def test_the_exit_code_says_whether_anything_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0 the same, 1 a difference, 2 nothing to compare, with what to give instead."""
    path = str(as_folder(tmp_path / "a", KAFKAS))
    assert main([path, path]) == 0
    assert capsys.readouterr().out == "1 records are the same\n"
    assert main([path]) == 1
    assert main([path, str(tmp_path / "nowhere")]) == 2
    assert "give a jar of Kafka" in capsys.readouterr().err
    assert main([]) == 2


def test_requests_are_no_records(tmp_path: Path) -> None:
    """A jar of clients has hundreds of them."""
    with pytest.raises(UnreadableDefinitions, match="no definitions of records"):
        messages_of(as_folder(tmp_path / "a", {**KAFKAS, "type": "request"}))
