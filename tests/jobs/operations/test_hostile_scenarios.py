"""Hostile and mistaken scenario files: each is one line with the place and what to do, exit code 2, nothing written."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from jobs.errors import ScenarioFileError
from jobs.laboratory.simulate import simulate
from tests.conftest import PROJECT_ROOT

HEAD: Final = 'name = "x"\nstart = 2026-01-05T00:00:00Z\nduration = "1m"\n'
TOPIC: Final = '[[topic]]\nname = "t"\n'
GROUP: Final = '[[group]]\nname = "g"\ntopics = ["t"]\n'
SHARE: Final = GROUP + 'protocol = "share"\n'
CONSUMER: Final = GROUP + 'protocol = "consumer"\n'
SETTINGS: Final = HEAD + "[cluster.settings]\n"
DIGITS: Final = "9" * 5000
GROWTH: Final = '[[fault]]\nkind = "add_partitions"\nat = "9s"\ntopic = "t"\npartitions = 5\n'


def started(time: str) -> str:
    return HEAD.replace("2026-01-05T00:00:00Z", time)


def lasting(duration: str) -> str:
    return HEAD.replace('"1m"', duration)


def fault(kind: str, keys: str, at: str = "5s") -> str:
    return f'{HEAD}{TOPIC}{GROUP}[[fault]]\nkind = "{kind}"\nat = "{at}"\n' + keys.replace("; ", "\n") + "\n"


FILES: Final[dict[str, tuple[str | bytes, str]]] = {
    # no TOML, or none that can be read
    "empty": ("", "name: is missing: add it"),
    "binary": (bytes(range(256)), "is no UTF-8 text: name a TOML file"),
    "of another encoding": ((HEAD + TOPIC).encode("utf-16"), "is no UTF-8 text: name a TOML file"),
    "a control character": (HEAD + 'about = "\0"\n', r"is not valid TOML: .*line 4.*: correct it there"),
    "unfinished": (HEAD + 'about = "x\n', r"is not valid TOML: .*line 4.*: correct it there"),
    "a key twice": (HEAD + "seed = 1\nseed = 2\n", r"is not valid TOML: .*line 5"),
    "a table twice": (HEAD + "[cluster]\n[cluster]\n", r"is not valid TOML: .*line 5"),
    "lists in lists": (HEAD + "about = " + "[" * 9000 + "]" * 9000, "nested too deeply"),
    "tables in tables": (HEAD + "about = " + "{a=" * 9000 + "1" + "}" * 9000, "nested too deeply"),
    "a key of many dots": (HEAD + "a" + ".a" * 900 + " = 1\n", "a: is not known here"),
    "a number without end": (HEAD + f"seed = {DIGITS}\n", "a number in it has thousands of digits"),
    "a setting without end": (SETTINGS + f'"group.max.size" = {DIGITS}\n', "a number in it has thousands of digits"),
    "a key of two lines": (HEAD + '"a\\nb" = 1\n', r"'a\\nb': is not known here"),
    "a key without end": (HEAD + f"{'k' * 100_000} = 1\n", r"'k{60}\.\.\.': is not known here"),
    # near misses
    "a misspelt key": (HEAD + "durration = 1\n", r"durration: is not known here; .*did you mean duration\?"),
    "a table for tables": (HEAD + '[group]\nname = "g"\n', r"group: must be tables: write \[\[group\]\]"),
    "tables for a table": (HEAD + "[[cluster]]\nbrokers = 1\n", r"cluster: must be a table: write \[cluster\]"),
    "a text for tables": (HEAD + 'fault = ["crash"]\n', r"fault\[0\]: must be a table: write \[\[fault\]\]"),
    "a misspelt setting": (SETTINGS + '"group.max.sise" = 1\n', r"'group.max.sise': .*did you mean group.max.size\?"),
    "a setting of another spelling": (SETTINGS + '"group_max_size" = 1\n', "no coordinator setting is called"),
    "a setting without quotes": (SETTINGS + "group.max.size = 1\n", "put the names of settings in quotes"),
    "the release as a setting": (SETTINGS + '"kafka.version" = "4.3"\n', "no coordinator setting is called"),
    "a misspelt group": (fault("crash", 'group = "gg"'), r"fault\[0\]\.group: there is no group 'gg': .*mean g\?"),
    "a misspelt topic": (HEAD + TOPIC + GROUP.replace('["t"]', '["tt"]'), r"names 'tt', .*did you mean t\?"),
    "a name without end": (fault("crash", f'group = "{"g" * 20_000}"'), r"there is no group 'g{60}\.\.\.'"),
    # wrong kinds
    "a text for a time": (started('"2026-01-05T00:00:00Z"'), "start: must be a time with an offset, as"),
    "a date for a time": (started("2026-01-05"), "start: must be a time with an offset, as"),
    "a number for a duration": (lasting("60"), "duration: must be a duration, as"),
    "a fraction": (lasting('"1.5m"'), "duration: must be a duration, as"),
    "digits of another script": (lasting('"\u0661m"'), "duration: must be a duration, as"),
    "a whole float": (HEAD + TOPIC + "partitions = 2.0\n", r"topic\[0\]\.partitions: must be a whole number from"),
    "true for one": (HEAD + TOPIC + "partitions = true\n", r"topic\[0\]\.partitions: must be a whole number from"),
    "a list for a word": (HEAD + TOPIC + GROUP + 'protocol = ["share"]\n', "protocol: must be one of classic"),
    "a word for a list": (HEAD + TOPIC + GROUP.replace('["t"]', '"t"'), r"topics: must be a list, as"),
    "numbers for names": (HEAD + TOPIC + GROUP.replace('["t"]', "[1]"), r"topics\[0\]: must be a text"),
    "no rate": (HEAD + TOPIC + "rate = nan\n", r"topic\[0\]\.rate: must be records a second"),
    "an endless rate": (HEAD + TOPIC + "rate = inf\n", r"topic\[0\]\.rate: must be records a second"),
    "a float for a setting": (SETTINGS + '"group.max.size" = 1.5\n', r'"group.max.size": must be a whole number'),
    "true for a setting": (SETTINGS + '"group.max.size" = true\n', r'"group.max.size": must be a whole number'),
    "digits with a line": (SETTINGS + '"group.max.size" = "1_0"\n', r'"group.max.size": must be a whole number'),
    "an endless setting": (SETTINGS + '"group.max.size" = inf\n', r'"group.max.size": must be a whole number'),
    "a list of kinds": (SETTINGS + '"group.consumer.assignors" = [1, "range"]\n', 'assignors": must be a list, as'),
    "maybe": (SETTINGS + '"group.share.assignor.offload.enable" = "maybe"\n', "must be true or false"),
    # out of range
    "no time of Kafka's": (started("1969-12-31T23:59:59Z"), "start: must be a time from 1970"),
    "the first year, east": (started("0001-01-01T00:00:00+23:59"), "start: must be a time from 1970"),
    "into the year 10000": (started("9999-12-31T23:59:30Z"), "duration: must end before the year 10000"),
    "nothing": (lasting('"0s"'), "duration: must be longer than nothing"),
    "backwards": (lasting('"-1m"'), "duration: must be a duration, as"),
    "for ever": (lasting('"999999999999d"'), r'duration: must be at most "3650d"'),
    "more than 32 bits": (HEAD + TOPIC + GROUP + 'max_poll_interval = "30d"\n', "max_poll_interval: must be at most"),
    "a linger of days": (HEAD + '[cluster]\nappend_linger = "9d"\n', r'append_linger: must be at most "4999ms"'),
    "a latency backwards": (HEAD + '[cluster]\nlatency = ["9ms", "1ms"]\n', "latency: the first duration must not"),
    "no assignor": (SETTINGS + '"group.consumer.assignors" = []\n', "must name one or more of uniform, range, once"),
    "an assignor twice": (SETTINGS + '"group.consumer.assignors" = "range,range"\n', "must name one or more of"),
    "more than 63 bits": (HEAD + "seed = 9223372036854775808\n", "seed: must be a whole number from 0"),
    "a folder for a topic": (HEAD + '[[topic]]\nname = "../t"\n', r"topic\[0\]\.name: must be the name of a topic"),
    "a topic of Kafka's own": (HEAD + '[[topic]]\nname = "__consumer_offsets"\n', "must be the name of a topic"),
    "topics that collide": (HEAD + '[[topic]]\nname = "a.b"\n[[topic]]\nname = "a_b"\n', r"topic\[1\]\.name: collides"),
    "a group id without end": (HEAD + TOPIC + GROUP.replace('"g"', f'"{"g" * 32_001}"'), "name: must be at most 32000"),
    "members beyond memory": (HEAD + TOPIC + GROUP + "count = 99999\nmembers = 4999\n", "more than 500000 members"),
    "partitions beyond memory": (
        HEAD + "".join(f'[[topic]]\nname = "t{index}"\npartitions = 10000\n' for index in range(21)),
        "partitions are more than 200000 in all: lower them",
    ),
    "partitions beyond memory, later": (
        HEAD
        + "".join(
            f'[[topic]]\nname = "t{index}"\n[[fault]]\nkind = "add_partitions"\nat = "9s"\ntopic = "t{index}"\n'
            "partitions = 10000\n"
            for index in range(21)
        ),
        "partitions are more than 200000 in all: lower them",
    ),
    "strikes without end": (
        fault("crash", 'group = "g"; every = "1ms"').replace('"1m"', '"3000d"'),
        r"fault\[0\]\.every: lets the fault strike more than 1000000 times",
    ),
    "a rack without end": (
        HEAD + TOPIC + CONSUMER + f'racks = ["{"r" * 32_001}"]\n',
        r"group\[0\]\.racks\[0\]: must be at most 32000 bytes long",
    ),
    "a topic of an application without end": (
        HEAD + TOPIC + GROUP.replace('"g"', f'"{"g" * 240}"') + 'protocol = "streams"\n',
        r"group\[0\]\.name: makes 'g{60}\.\.\.' an internal topic: names of topics have 249",
    ),
    "a session that none may have": (
        HEAD + TOPIC + GROUP + 'session_timeout = "1s"\n',
        r"group\[0\]\.session_timeout: the brokers take 6000 to",
    ),
    # what would never be, or be nothing
    "after the end": (HEAD + TOPIC + GROUP + 'start_after = "1m"\n', "start_after: is not before the end"),
    "a fault after the end": (fault("crash", 'group = "g"', at="1m"), "at: is not before the end of the scenario"),
    "a member of none": (fault("crash", 'group = "g"; member = 1'), "member: group 'g' has members 0 to 0"),
    "a broker of none": (fault("broker_failover", 'broker = 4; duration = "1s"'), "must be one of the brokers, 1 to 3"),
    "a partition before it is": (
        fault("delete_records", 'topic = "t"; partition = 3; offset = 1') + GROWTH,
        r"fault\[0\]\.partition: topic 't' has partitions 0 to 0 at that time",
    ),
    "partitions that go away": (
        fault("add_partitions", 'topic = "t"; partitions = 3', at="20s") + GROWTH,
        r"fault\[0\]\.partitions: must be above what the topic has at that time \(5\)",
    ),
    "grown again and again": (
        fault("add_partitions", 'topic = "t"; partitions = 3; every = "9s"'),
        r"fault\[0\]\.partitions: must be above what the topic has at that time \(3\)",
    ),
    "faster than it passes": (
        fault("pause", 'group = "g"; duration = "9s"; every = "9s"'),
        r"fault\[0\]\.every: must be longer than duration",
    ),
    "a fault's key of another": (fault("crash", 'group = "g"; broker = 1'), "broker: does nothing for crash"),
    "share keys in a classic group": (HEAD + TOPIC + GROUP + "renew_every = 3\n", "renew_every: does nothing in a"),
    "classic keys in a share group": (HEAD + TOPIC + SHARE + 'request_timeout = "9s"\n', "request_timeout: does"),
    "classic keys in a consumer group": (HEAD + TOPIC + CONSUMER + 'request_timeout = "9s"\n', "request_timeout"),
}
"""What is wrong -> (the file, what the error says)."""


def refused(path: Path, root: Path) -> str:
    """The error of a file, of which nothing may come."""
    with pytest.raises(ScenarioFileError) as error:
        simulate(str(path), str(root / "out"))
    assert error.value.exit_code == 2
    assert not (root / "out").exists()
    return str(error.value)


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    """It has the file and the key, says what to do, and is short whatever the file is."""
    content, said = FILES[name]
    path = tmp_path / "f.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    line = refused(path, tmp_path)
    assert re.search(said, line), line
    assert "f.toml" in line
    assert len(line.splitlines()) == 1
    assert len(line) < 700


def test_there_are_sixty_and_more() -> None:
    """No two of them are the same."""
    assert len({content for content, _ in FILES.values()}) == len(FILES) >= 60


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """Folders, devices without end, names with characters that none has, and what is not there."""
    for path in (tmp_path, tmp_path / "none.toml", Path("/dev/zero"), Path("a\0b")):
        assert refused(path, tmp_path).endswith("name a TOML file")


def test_a_file_of_windows_is_read(tmp_path: Path) -> None:
    """Its byte order mark and line ends are no mistakes."""
    path = tmp_path / "f.toml"
    path.write_bytes(b"\xef\xbb\xbf" + (HEAD + TOPIC + GROUP).replace("\n", "\r\n").encode())
    assert simulate(str(path), str(tmp_path / "out")).summary.group_count == 1


def test_the_command_ends_with_two_and_one_line(tmp_path: Path) -> None:
    """Whatever is in the name of the file, and without a traceback."""
    path = tmp_path / "two\nlines.toml"
    path.write_text(HEAD + "durration = 1\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "jobs", "simulate", "--scenario", str(path), "--output", str(tmp_path / "out")],
        env={"PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr
    assert "durration: is not known here" in done.stderr
    assert not (tmp_path / "out").exists()
