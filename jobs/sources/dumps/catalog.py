"""Tables of Spark's catalog as dumps: where their files are."""

from typing import Final

from jobs.errors import SourceError
from jobs.spark.executors import Executor

READ_AS_FILES: Final = frozenset({"delta", "parquet"})


def located(executor: Executor, name: str) -> str:
    """The folder or URI of a table, by `jobs.settings.TABLE_NAME`. Raises SourceError for one that cannot be read."""
    if executor.session is None:
        raise SourceError(f"there is no file {name}, and only a night on Spark finds tables by name: give the folder")
    from pyspark.errors import AnalysisException  # noqa: PLC0415  (files need no Spark)

    quoted = ".".join(f"`{part}`" for part in name.split("."))
    try:
        rows = executor.session.sql(f"describe table extended {quoted}").collect()
    except AnalysisException as error:
        reason = str(error).splitlines()[0]
        raise SourceError(f"there is neither a file {name} nor such a table of Spark's catalog: {reason}") from error
    facts = {row["col_name"]: row["data_type"] for row in rows}
    provider, location = (facts.get(key) or "" for key in ("Provider", "Location"))
    if provider.lower() not in READ_AS_FILES or not location:
        raise SourceError(
            f"the table {name} is of {provider or 'an unknown format'}, and Delta and Parquet are read: name the "
            f"folder of its files{f', in {location}' if location else ''}"
        )
    return location.removeprefix("file:") if location.startswith("file:/") else location
