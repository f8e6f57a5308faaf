"""The project's Spark settings: conf/spark-defaults.conf, which bootstrap.py passes on."""

from pathlib import Path
from typing import Final

from jobs.settings import PROJECT_ROOT

DEFAULTS_FILE: Final = PROJECT_ROOT / "conf" / "spark-defaults.conf"
JARS_FOLDER: Final = PROJECT_ROOT / ".cache" / "jars"
"""Delta's jars, kept by bootstrap.py after the first start."""


def spark_defaults(defaults_file: Path = DEFAULTS_FILE) -> dict[str, str]:
    """The settings in conf/spark-defaults.conf by name, without resolving jars that exist already."""
    settings: dict[str, str] = {}
    for line in defaults_file.read_text(encoding="utf-8").splitlines():
        name, _, value = line.strip().partition(" ")
        if name and not name.startswith("#"):
            settings[name] = value.strip()
    jars = sorted(str(jar) for jar in JARS_FOLDER.glob("*.jar"))
    if jars:
        settings["spark.jars"] = ",".join(jars)
    return settings
