"""The broker with TLS, SASL and ACLs itself: Java's clients and tools get in as they should, and not otherwise."""

import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.live.kafka_home import KafkaHome
from tests.live.secure import MUTUAL, PLAIN, SASL, SecureBroker

COMMAND: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
COMMAND_TIMEOUT_S: Final = 60
ASKED: Final[tuple[tuple[str, dict[str, str], str], ...]] = (
    (MUTUAL, {"store_type": "JKS"}, "offsets-0 größe"),
    (SASL, {"mechanism": PLAIN, "password": "wrong"}, "SaslAuthenticationException"),
)


@pytest.mark.parametrize(("listener", "words", "expected"), ASKED, ids=[case[0] for case in ASKED])
def test_kafkas_own_tool_comes_in(
    home: KafkaHome, secure: SecureBroker, tmp_path: Path, listener: str, words: dict[str, str], expected: str
) -> None:
    """kafka-consumer-groups lists the groups with the right settings, and says why not with wrong ones."""
    file = secure.command_config(tmp_path / "client.properties", secure.client_settings(listener, **words))
    options = ["--bootstrap-server", secure.address_of(listener), "--command-config", str(file), "--list"]
    command = home.command(COMMAND, *options)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S)
    assert expected in done.stdout + done.stderr
