"""A Kerberos realm of MIT's KDC on a free port of 127.0.0.1, with keytabs as clients and brokers get them.

with Realm(tmp_path / "realm") as realm:
    realm.keytab("broker", "kafka/127.0.0.1")   # a file with the principal's key, which it is given here
    realm.configuration                         # KRB5_CONFIG of MIT's library, java.security.krb5.conf of Java
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.live.broker import free_ports
from tests.live.program import Running
from tests.maven import CACHE, Unavailable, locked, made

NAME: Final = "LEDGER.TEST"
GSSAPI: Final = "gssapi==1.12.0"
"""The Python package by which kafka-python speaks Kerberos."""
PROGRAMS: Final = ("krb5kdc", "kdb5_util", "kadmin.local")
START_TIMEOUT_S: Final = 30
INSTALL_TIMEOUT_S: Final = 300
CONFIGURATION: Final = """[libdefaults]
default_realm = {name}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
{name} = {{
    kdc = 127.0.0.1:{port}
}}
"""
KDC: Final = """[kdcdefaults]
kdc_listen = 127.0.0.1:{port}
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{name} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    acl_file = {folder}/acl
}}
"""


def gssapi() -> Path:
    """The folder of the Python package, made once. Raises Unavailable where it cannot be compiled."""
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", GSSAPI, "decorator", "--target")

    def fill(folder: Path) -> None:
        try:
            subprocess.run([*pip, folder], check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
        except subprocess.SubprocessError as error:
            raise Unavailable(f"{GSSAPI} cannot be had: Debian's libkrb5-dev and a compiler make it") from error

    with locked(CACHE / "gssapi.lock"):
        return made(CACHE / GSSAPI, fill)


class Realm(Running):
    """A running KDC; leave the `with` block, or call `stop`, to end it."""

    def __init__(self, folder: Path) -> None:
        """Start it in a new folder. Raises Unavailable without MIT's programs."""
        path = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
        found = {name: shutil.which(name, path=path) for name in PROGRAMS}
        if None in found.values():
            raise Unavailable("no Kerberos: apt install krb5-kdc krb5-admin-server")
        self._programs = {name: str(program) for name, program in found.items()}
        self.folder = folder
        self.configuration = folder / "krb5.conf"
        folder.mkdir()
        (port,) = free_ports(1)
        words = {"name": NAME, "port": port, "folder": folder}
        self.configuration.write_text(CONFIGURATION.format(**words))
        (folder / "kdc.conf").write_text(KDC.format(**words))
        (folder / "acl").touch()
        self._environment = os.environ | {
            "KRB5_CONFIG": str(self.configuration),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
        }
        self._run("kdb5_util", "create", "-s", "-r", NAME, "-P", "of the database")
        with (folder / "kdc.log").open("w") as log:
            self._process = subprocess.Popen(
                [self._programs["krb5kdc"], "-n"], stdout=log, stderr=log, env=self._environment
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            time.sleep(0.1)
        self.stop()
        raise TimeoutError((folder / "kdc.log").read_text())

    def keytab(self, name: str, *principals: str) -> Path:
        """A file with new keys of principals, which are made where they are not there."""
        path = self.folder / f"{name}.keytab"
        path.unlink(missing_ok=True)
        for principal in principals:
            with suppress(subprocess.CalledProcessError):
                self._run("kadmin.local", "-q", f"addprinc -randkey {principal}")
            self._run("kadmin.local", "-q", f"ktadd -k {path} {principal}")
        return path

    def stop(self) -> None:
        """End the KDC."""
        self._process.terminate()
        self._process.wait()

    def _run(self, program: str, *words: str) -> None:
        subprocess.run(
            [self._programs[program], *words], check=True, capture_output=True, text=True, env=self._environment
        )
