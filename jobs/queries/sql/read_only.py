"""Decide which statements of Spark SQL only read: by lists of what is allowed, on Spark's own plans.

The ledger is written only by its own jobs, which keep track of what they wrote; a row deleted by hand would go
unnoticed. So `sql` runs statements that read the tables of the warehouse, or that affect only the session (temporary
views and functions, variables, some settings, caches). Each plan of a parsed statement must be in the lists below,
wherever it is in the statement: in a subquery, a CTE, the body of a function, an explained statement. Each relation
of the analysed statement must be in the catalogue. The session itself knows no paths as tables, and no functions that
call Java.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

LOGICAL: Final = "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan"
TREE_NODE: Final = "org.apache.spark.sql.catalyst.trees.TreeNode"
QUERYING: Final = re.compile(
    r"Unresolved(Relation|Having|With|SubqueryColumnAliases|InlineTable|TableValuedFunction|TVFAliases|Hint|Namespace"
    r"|Identifier|Table|TableOrView|View|FunctionName|Function|Execute)"
    r"|PipeOperator|Project|Filter|Aggregate|Sort|GlobalLimit|LocalLimit|Offset|Union|Intersect|Except|Distinct|Join|LateralJoin"
    r"|SubqueryAlias|OneRowRelation\$?|LocalRelation|Generate|WithWindowDefinition|Pivot|Unpivot|Sample|RelationTimeTravel"
    r"|PlanWithUnresolvedIdentifier|RepartitionByExpression|Repartition|Window|Deduplicate|CurrentNamespace\$?|UnionLoop"
)
"""Plans of queries, and the names that commands have."""
COMMANDS: Final = re.compile(
    r"Show(Tables|Views|Columns|Functions|Namespaces|TableProperties|CreateTable|Partitions|Catalogs|CurrentNamespace)"
    r"\w*|Describe(Relation|Column|Query|Function|Namespace|DeltaHistory|DeltaDetail|Table)\w*|ExplainCommand"
    r"|Set(Command|CatalogAndNamespace|NamespaceCommand|Variable)|ResetCommand|CreateVariable|DropVariable"
    r"|CreateViewCommand|DropView|CreateSQLFunctionCommand|DropFunctionCommand"
    r"|CacheTable|CacheTableAsSelect|UncacheTable|ClearCacheCommand\$?|RefreshTable"
)
"""Commands that change nothing outside of the session; those of views and functions if they are temporary."""
SETTINGS: Final = re.compile(
    r"spark\.sql\.(ansi\.enabled|session\.timeZone|shuffle\.partitions|adaptive\.\w+(\.\w+)*|autoBroadcastJoinThreshold"
    r"|caseSensitive|mapKeyDedupPolicy|repl\.\w+(\.\w+)*)"
)
"""Settings that a statement may change: what a query means, and how fast it is."""
RELATIONS: Final = ("LogicalRelation", "DataSourceV2Relation", "StreamingRelation", "StreamingRelationV2")
"""Plans that read files or other programs' data: they are allowed if they are a table of the catalogue."""
FILES_AS_TABLES: Final = "spark.sql.runSQLOnFiles"
SYSTEM: Final = "system"
BUILTIN: Final = "builtin"
"""Catalog and schema of Spark's own functions."""
UNSAFE_FUNCTIONS: Final = ("java_method", "reflect", "try_reflect")
"""They call any method of a Java class, which may write files or end the program."""


def refused_part(session: SparkSession, statement: str) -> str | None:
    """The part of a statement that does more than read, as Spark names it; None where all of it reads.

    Raises the errors of Spark's parser.
    """
    state = session._jsparkSession.sessionState()
    plan = state.sqlParser().parsePlan(statement)
    return _refused(session, plan)


def refused_relation(session: SparkSession, statement: str) -> str | None:
    """A relation of the analysed statement that is no table of the catalogue; else None. It executes nothing.

    Raises the errors of Spark's analysis.
    """
    jvm: Any = session._jvm
    state = session._jsparkSession.sessionState()
    skip = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    analysed = state.executePlan(state.sqlParser().parsePlan(statement), skip).analyzed()
    for node in _plans(jvm, analysed):
        name = node.getClass().getSimpleName()
        if name in RELATIONS:
            is_known = name.startswith("LogicalRelation") and node.catalogTable().isDefined()
            if not is_known and not (name == "DataSourceV2Relation" and node.identifier().isDefined()):
                return str(name)
    return None


def _refused(session: SparkSession, plan: Any) -> str | None:
    jvm: Any = session._jvm
    parser = session._jsparkSession.sessionState().sqlParser()
    for node in _plans(jvm, plan):
        name = node.getClass().getSimpleName()
        if QUERYING.fullmatch(name):
            continue
        if not COMMANDS.fullmatch(name) or not _is_of_session(session, name, node):
            return str(name)
        if name == "CreateSQLFunctionCommand":
            for body, parse in ((node.exprText(), parser.parseExpression), (node.queryText(), parser.parsePlan)):
                if body.isDefined() and (part := _refused(session, parse(body.get()))) is not None:
                    return part
    return None


def _is_of_session(session: SparkSession, name: str, node: Any) -> bool:
    """Does a command concern only the session?"""
    if name == "SetCommand":  # without a value it shows one
        pair = node.kv()
        is_read = not pair.isDefined() or not pair.get()._2().isDefined()
        return is_read or SETTINGS.fullmatch(str(pair.get()._1())) is not None
    if name == "ResetCommand":
        return bool(node.config().isDefined()) and SETTINGS.fullmatch(str(node.config().get())) is not None
    if name == "CreateViewCommand":
        return str(node.viewType()) == "LocalTempView"
    if name in ("CreateSQLFunctionCommand", "DropFunctionCommand"):
        return bool(node.isTemp())
    if name == "DropView":
        parts = node.child().nameParts()
        catalog = session._jsparkSession.sessionState().catalog()
        return parts.size() == 1 and bool(catalog.getTempView(parts.apply(0)).isDefined())
    return True


def unsafe_function_of(error: PySparkException) -> str | None:
    """The function that a statement names and a session without `UNSAFE_FUNCTIONS` does not know; else None."""
    if error.getCondition() not in ("UNRESOLVED_ROUTINE", "ROUTINE_NOT_FOUND"):
        return None
    name = (error.getMessageParameters() or {}).get("routineName", "").replace("`", "").rpartition(".")[2].lower()
    return name if name in UNSAFE_FUNCTIONS else None


def set_unsafe(session: SparkSession, *, is_allowed: bool) -> None:
    """Make a session know `UNSAFE_FUNCTIONS`, and paths as tables, or not: then no statement can, however disguised."""
    session.conf.set(FILES_AS_TABLES, is_allowed)
    jvm: Any = session._jvm
    catalyst, option = jvm.org.apache.spark.sql.catalyst, jvm.scala.Option.apply
    own, builtin = (
        session._jsparkSession.sessionState().functionRegistry(),
        catalyst.analysis.FunctionRegistry.builtin(),
    )
    for name in UNSAFE_FUNCTIONS:
        identifier = catalyst.FunctionIdentifier(name, option(BUILTIN), option(SYSTEM))
        if not is_allowed:
            own.dropFunction(identifier)
        elif not own.functionExists(identifier):
            info, builder = builtin.lookupFunction(identifier), builtin.lookupFunctionBuilder(identifier)
            own.registerFunction(identifier, info.get(), builder.get())


def _plans(jvm: Any, root: Any) -> Iterator[Any]:
    """Yield every logical plan in a tree: children, and what expressions, CTEs and commands hold."""
    of_class = jvm.java.lang.Class.forName
    logical, tree, product = of_class(LOGICAL), of_class(TREE_NODE), of_class("scala.Product")
    iterable = of_class("scala.collection.Iterable")
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if not hasattr(node, "getClass"):  # a string or number
            continue
        if iterable.isInstance(node):
            waiting += _elements(node.iterator())
        elif product.isInstance(node) and (tree.isInstance(node) or node.getClass().getName().startswith("scala.")):
            if logical.isInstance(node):
                yield node
            waiting += _elements(node.productIterator())


def _elements(iterator: Any) -> Iterator[Any]:
    while iterator.hasNext():
        yield iterator.next()
