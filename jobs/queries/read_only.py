"""Decide which SQL statements only read, from Spark's own parser, whatever the text looks like.

The ledger is written only by its own jobs, which keep track of what they wrote; a row deleted by hand would go
unnoticed. So `sql` runs statements that read, or that affect only the session (temporary views, variables, settings,
caches).
"""

import re
from collections.abc import Iterator
from typing import Any, Final

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
        elif WRITING.fullmatch(name):
            return str(name)
    return None


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
