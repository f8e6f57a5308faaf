"""The project's Spark settings: conf/spark-defaults.conf, which bootstrap.py passes on."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jobs.settings import PROJECT_ROOT

DEFAULTS_FILE: Final = PROJECT_ROOT / "conf" / "spark-defaults.conf"
JARS_FOLDER: Final = PROJECT_ROOT / ".cache" / "jars"
"""Delta's jars, kept by bootstrap.py after the first start."""

SUBMIT_ARGS: Final = "PYSPARK_SUBMIT_ARGS"
SQL_PREFIX: Final = "spark.sql."
NO_SAY: Final = frozenset(
    {
        "spark.sql.adaptive.enabled",
        "spark.sql.catalog.spark_catalog",
        "spark.sql.execution.arrow.pyspark.enabled",
        "spark.sql.extensions",
        "spark.sql.legacy.parameterSubstitution.constantsOnly",
        "spark.sql.shuffle.partitions",
        "spark.sql.warehouse.dir",
    }
)
"""Settings that cannot affect an answer."""
USUAL: Final = {
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variable.substitute": "false",
}


def own_sql_settings(environment: Mapping[str, str] = os.environ, defaults_file: Path = DEFAULTS_FILE) -> list[str]:
    """Names of settings that may change the meaning of SQL, and of a master on another machine."""
    words = shlex.split(environment.get(SUBMIT_ARGS, ""))
    settings = spark_defaults(defaults_file)
    for word, value in zip(words, [*words[1:], ""], strict=False):
        option, _, setting = word.partition("=")
        if option == "--master":
            settings["spark.master"] = setting or value
        elif option == "--conf":
            name, _, setting = (setting or value).partition("=")
            settings[name] = setting
    found = [name for name, usual in USUAL.items() if settings.get(name) != usual]
    found += [name for name in settings if name.startswith(SQL_PREFIX) and name not in NO_SAY and name not in USUAL]
    if not settings.get("spark.master", "local").startswith("local"):
        found.append("spark.master")
    return sorted(found)


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
        settings.pop("spark.jars.packages", None)
        settings.pop("spark.jars.excludes", None)
    return settings
