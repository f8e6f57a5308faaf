"""Decide which SQL statements only read, from Spark's own parser, whatever the text looks like.

The ledger is written only by its own jobs, which keep track of what they wrote; a row deleted by hand would go
unnoticed. So `sql` runs statements that read, or that affect only the session (temporary views, variables, settings,
caches). What reaches beyond Spark is refused, too: functions that call any Java method, views of other programs'
data, and settings that name a catalog's class.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

COMMAND: Final = "org.apache.spark.sql.catalyst.plans.logical.Command"
READING: Final = re.compile(
    r"(Show|Describe|Explain|List)\w*"
    r"|Set(Command|CatalogAndNamespace|NamespaceCommand|CatalogCommand|Variable)|ResetCommand"
    r"|CreateVariable|DropVariable"
    r"|CreateViewCommand|CreateTempViewUsing"  # logical commands of the parser; the first is temporary, too
    r"|CacheTable|CacheTableAsSelect|UncacheTable|ClearCacheCommand\$?|RefreshTable|RefreshResource"
)
"""Commands that change nothing outside of the session."""
TEMPORARY_FUNCTIONS: Final = frozenset({"CreateSQLFunctionCommand", "DropFunctionCommand"})
"""As `READING`, if the function is temporary."""
WRITING: Final = re.compile(r"\w*Statement|(Insert|Restore|Clone)\w*|Call|\w*ExecuteImmediate\w*|ScriptTransformation")
"""Plans that write, or that run unknown statements, and are not Spark commands."""
CATALOG_SETTING: Final = "spark.sql.catalog."
"""Prefix of settings with the class of a catalog and its options: a query of its tables connects to other programs."""
FILE_FORMATS: Final = frozenset({"avro", "binaryfile", "csv", "delta", "json", "orc", "parquet", "text", "xml"})
"""Sources of temporary views that only read files. A JDBC driver, for one, may create the database that it is given."""
SYSTEM: Final = "system"
BUILTIN: Final = "builtin"
"""Catalog and schema of Spark's own functions."""
UNSAFE_FUNCTIONS: Final = ("java_method", "reflect", "try_reflect")
"""They call any method of a Java class, which may write files or end the program."""


def writing_part(session: SparkSession, statement: str) -> str | None:
    """The part of a statement that does more than read, as Spark names it; None where all of it reads.

    Raises the errors of Spark's parser.
    """
    plan = session._jsparkSession.sessionState().sqlParser().parsePlan(statement)
    jvm: Any = session._jvm
    command = jvm.java.lang.Class.forName(COMMAND)
    for node in _nodes(plan):
        name = node.getClass().getSimpleName()
        if command.isInstance(node):
            if not READING.fullmatch(name) and not _is_temporary(session, name, node):
                return str(name)
            if (reaching := _reaching(name, node)) is not None:
                return reaching
        elif WRITING.fullmatch(name):
            return str(name)
    return None


def _reaching(name: str, node: Any) -> str | None:
    """The setting or source of a command that reaches beyond the session; None without one."""
    if name == "SetCommand" and node.kv().isDefined():
        key = str(node.kv().get()._1())
        return f"SET {key}" if key.startswith(CATALOG_SETTING) else None
    if name == "CreateTempViewUsing" and str(node.provider()).lower() not in FILE_FORMATS:
        return f"USING {node.provider()}"
    return None


def unsafe_function_of(error: PySparkException) -> str | None:
    """The function that a statement names and a session without `UNSAFE_FUNCTIONS` does not know; else None."""
    if error.getCondition() not in ("UNRESOLVED_ROUTINE", "ROUTINE_NOT_FOUND"):
        return None
    name = (error.getMessageParameters() or {}).get("routineName", "").replace("`", "").rpartition(".")[2].lower()
    return name if name in UNSAFE_FUNCTIONS else None


def set_unsafe_functions(session: SparkSession, *, are_allowed: bool) -> None:
    """Make a session know `UNSAFE_FUNCTIONS`, or not: then no statement can call them, in whatever disguise."""
    jvm: Any = session._jvm
    catalyst, option = jvm.org.apache.spark.sql.catalyst, jvm.scala.Option.apply
    own, builtin = (
        session._jsparkSession.sessionState().functionRegistry(),
        catalyst.analysis.FunctionRegistry.builtin(),
    )
    for name in UNSAFE_FUNCTIONS:
        identifier = catalyst.FunctionIdentifier(name, option(BUILTIN), option(SYSTEM))
        if not are_allowed:
            own.dropFunction(identifier)
        elif not own.functionExists(identifier):
            info, builder = builtin.lookupFunction(identifier), builtin.lookupFunctionBuilder(identifier)
            own.registerFunction(identifier, info.get(), builder.get())


def _nodes(plan: Any) -> Iterator[Any]:
    """Yield a plan and all plans below it."""
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        children = node.children()
        waiting += [children.apply(index) for index in range(children.size())]


def _is_temporary(session: SparkSession, name: str, node: Any) -> bool:
    if name in TEMPORARY_FUNCTIONS:
        return bool(node.isTemp())
    if name != "DropView":
        return False
    parts = node.child().nameParts()
    catalog = session._jsparkSession.sessionState().catalog()
    return parts.size() == 1 and bool(catalog.getTempView(parts.apply(0)).isDefined())
