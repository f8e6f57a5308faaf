"""Translate statements that mean the same to Spark and DuckDB into DuckDB's SQL.

sqlglot parses and writes statements. It accepts more than Spark, and parses some text differently. So only listed
constructs, of listed types, go to DuckDB; for all others `OutsideSubset` is raised, and Spark executes the statement.
Where the engines differ, the translation follows Spark: nulls first in ascending order, sums as BIGINT, Spark's types
for literals, an error for division by zero. If DuckDB raises an error, Spark executes the statement, or raises its own
error.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, NamedTuple

from sqlglot import Dialect, ErrorLevel, exp, generator, parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from jobs.delta.times import EPOCH
from jobs.queries.sql_subset import Argument, Column, Kind, OutsideSubset, Relations, Statement

LEXEME: Final = re.compile(
    r"(?P<number>\d+)|(?P<word>[A-Za-z_]\w*|(group|order)[ \t\r\n]+by)|(?P<text>'[^'\\\x00]*')"
    r"|(?P<sign><>|!=|<=|>=|==|[=<>(),.*+\-/])",
    re.ASCII | re.IGNORECASE,
)
COMMENTS: Final = re.compile(r"--|/\*")
"""A hint to Spark looks like a comment."""
GRAMMAR: Final = {
    *("and", "as", "asc", "between", "case", "desc", "distinct", "else", "end", "false", "from", "group by", "having"),
    *("in", "inner", "is", "join", "left", "like", "limit", "not", "null", "on", "or", "order by", "outer", "select"),
    *("then", "true", "when", "where", "with"),
}
KEYWORDS: Final = frozenset(
    re.findall(
        r"\w+",
        "all anti any asof by cross escape except exists for full group ilike intersect lateral minus natural order "
        "over pivot qualify right rlike semi some tablesample union unpivot using values window",
    )
)
"""Words that are never names here. Spark accepts some of them as names; such statements are left to it. All other
words may be names."""
OPTIONAL: Final = frozenset({"asc", "inner", "outer", "nulls", "first", "last"})
"""Words that sqlglot drops where they are the default. It adds AS, and NOT has two positions."""
TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?)?(Z?)")
INT_MAX, BIGINT_MAX = 2**31 - 1, 2**63 - 1
EXACT_DOUBLE_MAX: Final = 2**53
"""Up to here Spark's sum of doubles, from which it computes averages, equals the integer sum."""
UNITS_US: Final = {"second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6, "day": 86400 * 10**6}
CONSTANTS: Final = (exp.Literal, exp.Neg, exp.Boolean, exp.Cast)
JOINS: Final = frozenset({("", ""), ("", "INNER"), ("LEFT", ""), ("LEFT", "OUTER")})
COMPARISONS: Final = (exp.EQ, exp.NEQ, exp.LT, exp.GT, exp.LTE, exp.GTE)
ARITHMETIC: Final = (exp.Add, exp.Sub, exp.Mul, exp.Div)
CONDITIONS: Final = (*COMPARISONS, exp.Is, exp.In, exp.Between, exp.Like, exp.Not, exp.And, exp.Or)
OPERATORS: Final = (*CONDITIONS, *ARITHMETIC)
OPERANDS: Final[Mapping[type, Kind]] = {
    **dict.fromkeys((exp.And, exp.Or, exp.Not), Kind.BOOLEAN),
    **dict.fromkeys(ARITHMETIC, Kind.INTEGER),
    exp.Like: Kind.TEXT,
}
"""The kind of operands of each operator; other operators take any ordered kind."""
ARGUMENTS: Final[Mapping[type, frozenset[str]]] = {
    **dict.fromkeys((*COMPARISONS, exp.Add, exp.Sub, exp.Mul, exp.Is, exp.And, exp.Or), frozenset({"expression"})),
    **dict.fromkeys((exp.Not, exp.Paren, exp.Neg, exp.Boolean, exp.Star, exp.Null, exp.Where, exp.Having), frozenset()),
    exp.Select: frozenset(
        {"expressions", "distinct", "from_", "joins", "where", "group", "having", "order", "limit", "with_"}
    ),
    **dict.fromkeys((exp.With, exp.Group, exp.Order, exp.Distinct, exp.Anonymous), frozenset({"expressions"})),
    **dict.fromkeys((exp.CTE, exp.Subquery, exp.Alias), frozenset({"alias"})),
    exp.Div: frozenset({"expression", "typed", "safe"}),
    exp.Like: frozenset({"expression", "negate"}),
    exp.In: frozenset({"expressions", "query"}),
    exp.Between: frozenset({"low", "high"}),
    exp.Case: frozenset({"ifs", "default"}),
    exp.If: frozenset({"true"}),
    exp.Cast: frozenset({"to"}),
    exp.DataType: frozenset({"nested"}),
    exp.Literal: frozenset({"is_string"}),
    exp.Identifier: frozenset(),
    exp.Column: frozenset({"table"}),
    exp.Table: frozenset({"db", "catalog", "alias"}),
    exp.TableAlias: frozenset(),
    exp.From: frozenset(),
    exp.Join: frozenset({"side", "kind", "on"}),
    exp.Ordered: frozenset({"desc", "nulls_first"}),
    exp.Limit: frozenset({"expression"}),
}
"""The supported nodes, and the parts that each may have besides `this`."""
ORDERED: Final = frozenset({Kind.INTEGER, Kind.TEXT, Kind.TIME, Kind.BOOLEAN})
ELEMENTS: Final = {Kind.INTEGERS: Kind.INTEGER, Kind.TEXTS: Kind.TEXT}


class _Subset(Dialect):
    """Spark's dialect; function calls are parsed as name and arguments, and not replaced by similar functions."""

    class Tokenizer(Spark.Tokenizer):
        """Spark's tokenizer."""

    class Parser(SparkParser):
        """Spark's parser without function definitions."""

        FUNCTIONS: ClassVar = {}
        FUNCTION_PARSERS: ClassVar = {}
        NO_PAREN_FUNCTIONS: ClassVar = {}
        NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}

    class Generator(generator.Generator):
        """Writes what was parsed, to be compared with the original."""

        TRANSFORMS: ClassVar = {
            **generator.Generator.TRANSFORMS,
            exp.Cast: lambda self, node: f"TIMESTAMP {self.sql(node.this)}",
        }


def statement_of(text: str, relations: Relations) -> Statement:
    """The DuckDB statement with the same result as in Spark. Raises OutsideSubset."""
    try:
        query = _tree(text)
        is_distinct = query.args.get("distinct") is not None
        columns = _Translation(relations, {}).query(query)
        if is_distinct and any(column.kind is Kind.DOUBLE for column in columns):
            raise OutsideSubset("DISTINCT of doubles")
        return Statement(query.sql("duckdb"), tuple(columns))
    except (SqlglotError, RecursionError) as error:
        raise OutsideSubset("the syntax") from error


def definition_of(query: str, parameters: Mapping[tuple[str, str], Argument]) -> str:
    """The query of one of our views or functions, for DuckDB. `parameters`: by function name and parameter name."""
    tree = parse_one(query, dialect="spark")
    for name in list(tree.find_all(exp.Column)):
        if (argument := parameters.get((name.table, name.name))) is not None:
            name.replace(parse_one(argument.text, dialect="duckdb"))
    for cast in list(tree.find_all(exp.TryCast)):
        cast.replace(exp.Cast(this=cast.this, to=cast.to))  # equals Spark's CAST, unlike Hive's
    # constructs that sqlglot does not translate to DuckDB
    for exists in list(tree.find_all(exp.Exists)):
        found = exp.ArrayFilter(this=exists.this, expression=exists.expression)
        exists.replace(exp.GT(this=exp.ArraySize(this=found), expression=exp.Literal.number(0)))
    for call in list(tree.find_all(exp.Anonymous)):
        if call.name == "timestamp_millis":
            call.replace(_duckdb("make_timestamptz(1000 * ?)", Kind.TIME, Term(call.expressions[0], Kind.INTEGER)).node)
    return tree.sql("duckdb", unsupported_level=ErrorLevel.RAISE)


def _tree(text: str) -> exp.Select:
    """Parse a statement, if sqlglot and Spark parse it alike. Raises OutsideSubset."""
    if COMMENTS.search(text):
        raise OutsideSubset("a comment")
    dialect = _Subset()
    tokens = list(_tokens(text, dialect))
    trees = dialect.parser().parse(tokens, text)
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Select):
        raise OutsideSubset("a statement that is no SELECT")
    for node in tree.walk():
        _check(node)
    written = tree.sql(dialect)
    words, as_places, not_count = _words(tokens, text)
    read, read_places, read_count = _words(dialect.tokenize(written), written)
    if words != read or not as_places <= read_places or not_count != read_count:
        raise OutsideSubset("a part that Spark reads otherwise")
    return tree


def _tokens(text: str, dialect: Dialect) -> Iterator[Token]:
    """The tokens of a statement: supported keywords, and names. Raises OutsideSubset."""
    tokens = dialect.tokenize(text)
    place = 0
    for token, following in zip(tokens, [*tokens, None][1:], strict=True):
        raw = text[token.start : token.end + 1]
        lexeme = LEXEME.fullmatch(raw)
        word = " ".join(raw.lower().split())
        if lexeme is None or text[place : token.start].strip(" \t\r\n") or word in KEYWORDS:
            raise OutsideSubset(f"{raw!r}")
        place = token.end + 1
        is_time = word == "timestamp" and following is not None and following.token_type is TokenType.STRING
        if lexeme["word"] and word not in GRAMMAR and not is_time:
            token = Token(TokenType.VAR, raw, token.line, token.col, token.start, token.end)  # noqa: PLW2901
        yield token
    if text[place:].strip(" \t\r\n"):
        raise OutsideSubset(f"{text[place:].strip()[:10]!r}")


def _words(tokens: Sequence[Token], text: str) -> tuple[list[object], set[int], int]:
    """What a statement and its parsed form must have in common, so that nothing was dropped or moved: the words
    without optional ones, the positions of AS, and the number of NOTs."""
    words: list[object] = []
    as_places: set[int] = set()
    not_count = 0
    for token in tokens:
        raw = text[token.start : token.end + 1]
        word = " ".join(raw.lower().split())
        if word == "as":
            as_places.add(len(words))
        elif word == "not":
            not_count += 1
        elif word not in OPTIONAL:
            words.append(raw if raw[0] == "'" else word if raw[0].isalnum() or raw[0] == "_" else token.token_type)
    return words, as_places, not_count


def _check(node: exp.Expr) -> None:
    """Raises OutsideSubset for constructs that are not listed, and where Spark's operator precedence may differ."""
    known = ARGUMENTS.get(type(node))
    if known is None:
        raise OutsideSubset(f"{type(node).__name__}")
    for name, value in node.args.items():
        if (value == "" and not isinstance(node, exp.Literal)) or (
            name != "this" and name not in known and value not in (None, False, [])
        ):
            raise OutsideSubset(f"{name} of {type(node).__name__}")
    if isinstance(node, exp.Identifier) and (node.args["quoted"] or node.name.lower() in {*GRAMMAR, "nulls"}):
        raise OutsideSubset(f"the name {node.name}")
    if isinstance(node, exp.Select | exp.Group | exp.Order) and not node.expressions:
        raise OutsideSubset("an empty list")
    if isinstance(node, exp.Is) != isinstance(node.args.get("expression"), exp.Null):
        raise OutsideSubset("IS or NULL by itself")
    # conditions as operands need parentheses: `a = b is null` is ambiguous
    is_condition = isinstance(node, OPERATORS) and OPERANDS.get(type(node)) is not Kind.BOOLEAN
    if is_condition and any(isinstance(operand, CONDITIONS) for operand in node.iter_expressions()):
        raise OutsideSubset("conditions without parentheses")


class Term(NamedTuple):
    """An expression for DuckDB. `column`: set if it is just a column of a source."""

    node: Any
    kind: Kind
    column: str | None = None


class _Scope:
    def __init__(self) -> None:
        self._columns: list[tuple[str, Column, exp.Column]] = []
        """For each: name of its source, the column, its name in DuckDB."""

    def add(self, source: str, number: int, columns: Sequence[Column], names: Sequence[str]) -> None:
        if any(source == other for other, _, _ in self._columns):
            raise OutsideSubset(f"two sources by the name {source}")
        self._columns += [
            (source, column, exp.column(name, f"s{number}", quoted=True))
            for column, name in zip(columns, names, strict=True)
        ]

    def has(self, name: str) -> bool:
        """Is there a column of this name, ignoring case?"""
        return any(column.name.lower() == name.lower() for _, column, _ in self._columns)

    def find(self, name: exp.Column) -> Term:
        """The one matching column. Raises OutsideSubset."""
        found = [term for term in self._of(name) if term.column == name.name]
        if len(found) != 1:
            raise OutsideSubset(f"the name {name.name}")
        return found[0]

    def all_of(self, star: exp.Expr) -> list[Term]:
        """The columns that `*` means."""
        found = self._of(star) if isinstance(star, exp.Column) else self._of(exp.Column())
        if not found:
            raise OutsideSubset("*")
        return found

    def _of(self, name: exp.Column) -> list[Term]:
        """The columns of the named source, or of all sources."""
        source = name.table.lower()
        if source and self.has(source):
            raise OutsideSubset(f"the name {source}")  # a struct column with the name of a source would take precedence
        return [Term(node.copy(), at.kind, at.name) for of, at, node in self._columns if source in ("", of)]


class NamedQuery(NamedTuple):
    """A query in WITH, and the queries that it can name."""

    query: exp.Select
    named: "Named"


Named = Mapping[str, NamedQuery]


class _Translation:
    """Resolves the names of a query, checks types, and translates it for DuckDB."""

    def __init__(self, relations: Relations, named: Named) -> None:
        self._relations = relations
        self._named = named
        self._scope = _Scope()

    def query(self, query: exp.Expr) -> list[Column]:
        """Translate the query in place, and return its columns."""
        if not isinstance(query, exp.Select) or query.args.get("from_") is None:
            raise OutsideSubset("a query without FROM")
        for part in query.ctes:
            if part.alias.lower() in [other.alias.lower() for other in query.ctes if other is not part]:
                raise OutsideSubset(f"the name {part.alias}")
            # it can use those before it
            self._named = {**self._named, part.alias.lower(): NamedQuery(part.this, self._named)}
        query.set("with_", None)
        self._source(query.args["from_"], 0)
        for number, join in enumerate(query.args.get("joins") or (), 1):
            if (join.side, join.kind) not in JOINS or join.args.get("on") is None:
                raise OutsideSubset("such a join")
            self._source(join, number)
            self._condition(join, "on")
        if (distinct := query.args.get("distinct")) is not None and distinct.expressions:
            raise OutsideSubset("DISTINCT of some columns")
        names = {item.alias.lower(): item.this.copy() for item in query.expressions if isinstance(item, exp.Alias)}
        items = self._items(query)
        if (where := query.args.get("where")) is not None:
            self._condition(where)
        if (group := query.args.get("group")) is not None:
            group.set("expressions", [self._group(node, items, names) for node in group.expressions])
        if (having := query.args.get("having")) is not None:
            if group is None:
                raise OutsideSubset("HAVING without GROUP BY")
            self._condition(having)
        if (order := query.args.get("order")) is not None:
            for ordered in order.expressions:
                ordered.set("this", self._order(ordered.this, items, is_distinct=distinct is not None))
        if (limit := query.args.get("limit")) is not None:
            _limit(limit)
        query.set(
            "expressions", [exp.alias_(item.node, f"c{number}", quoted=True) for number, (item, _) in enumerate(items)]
        )
        return [Column(name, item.kind) for item, name in items]

    def _source(self, clause: exp.Expr, number: int) -> None:
        source = clause.this
        alias = source.alias.lower()
        part: NamedQuery | None = None
        name: tuple[str, ...] = ()
        if isinstance(source, exp.Subquery):
            part = NamedQuery(source.this, self._named)
        elif isinstance(source, exp.Table) and isinstance(source.this, exp.Anonymous):
            name = tuple(part.name.lower() for part in source.parts)
            arguments = tuple(map(_argument, source.this.expressions))
        elif isinstance(source, exp.Table):
            name = tuple(part.name.lower() for part in source.parts)
            arguments = None
            part = self._named.get(name[0]) if len(name) == 1 else None
        else:
            raise OutsideSubset("such a source")
        if part is not None:
            query = part.query.copy()
            columns: Sequence[Column] = _Translation(self._relations, part.named).query(query)
            names = [f"c{index}" for index in range(len(columns))]
            found: exp.Expr = query.subquery(f"s{number}")
        else:
            relation = self._relations(name, arguments)
            columns, names = relation.columns, [column.name for column in relation.columns]
            found = exp.to_table(relation.text, alias=f"s{number}")
        self._scope.add(alias or (name[-1] if name else f" {number}"), number, columns, names)
        clause.set("this", found)

    def _items(self, query: exp.Select) -> list[tuple[Term, str]]:
        """The select list, with the names of its columns."""
        found: list[tuple[Term, str]] = []
        for item in query.expressions:
            if item.is_star:
                if query.args.get("group") is not None:
                    raise OutsideSubset("*")
                found += [(term, str(term.column)) for term in self._scope.all_of(item)]
                continue
            alias = item.alias or None
            name = alias or _spark_name(item.unnest())
            term = self._term(item.this if alias else item)
            if alias is not None and self._scope.has(alias) and term.column != alias:
                # the engines differ on which of the two the name means elsewhere in the statement
                raise OutsideSubset(f"the name {alias}, which a column has, too")
            found.append((term, name))
        return found

    def _group(self, node: exp.Expr, items: Sequence[tuple[Term, str]], names: Mapping[str, Any]) -> Any:
        node = node.unnest()
        if isinstance(node, CONSTANTS):
            return exp.Literal.number(_ordinal(node, items))
        if isinstance(node, exp.Column) and not node.table and not self._scope.has(node.name):
            node = names.get(node.name.lower(), node).copy()
        term = self._term(node)
        if term.kind in (Kind.OTHER, Kind.DOUBLE):
            raise OutsideSubset("GROUP BY of such a type")
        return term.node

    def _order(self, node: exp.Expr, items: Sequence[tuple[Term, str]], *, is_distinct: bool) -> Any:
        place = None
        node = node.unnest()
        if isinstance(node, CONSTANTS):
            place = _ordinal(node, items)
        elif isinstance(node, exp.Column) and not node.table:
            found = [number for number, (_, name) in enumerate(items, 1) if name == node.name]
            if len(found) > 1 or (not found and any(name.lower() == node.name.lower() for _, name in items)):
                raise OutsideSubset(f"the name {node.name}")
            place = found[0] if found else None
        if place is None and is_distinct:
            raise OutsideSubset("ORDER BY of what a DISTINCT does not give")
        term = items[place - 1][0] if place is not None else self._term(node)
        if term.kind not in ORDERED | {Kind.DOUBLE}:
            raise OutsideSubset("ORDER BY of such a type")
        return term.node if place is None else exp.Literal.number(place)

    def _condition(self, node: exp.Expr, key: str = "this") -> None:
        """Translate a part of a node that must be a condition."""
        term = self._term(node.args[key])
        if term.kind is not Kind.BOOLEAN:
            raise OutsideSubset("a condition that is not boolean")
        node.set(key, term.node)

    def _term(self, node: Any) -> Term:
        """Translate a value or condition."""
        match node:
            case exp.Column() if not node.is_star:
                return self._scope.find(node)
            case _ if isinstance(node, CONSTANTS):
                return _constant(node)
            case exp.Anonymous():
                return self._call(node)
            case exp.Case():
                return self._case(node)
            case exp.Paren():
                term = self._term(node.this)
                return Term(exp.paren(term.node, copy=False), term.kind)
            case exp.Is():
                return Term(exp.Is(this=self._term(node.this).node, expression=exp.Null()), Kind.BOOLEAN)
            case exp.In() if node.args.get("query") is not None:
                return self._within(node)
        if isinstance(node, OPERATORS):
            return self._operator(node)
        raise OutsideSubset(f"{type(node).__name__} as a value")

    def _operator(self, node: exp.Expr) -> Term:
        if isinstance(node, exp.Like) and not (isinstance(node.expression, exp.Literal) and node.expression.is_string):
            raise OutsideSubset("LIKE of such a pattern")
        operands = list(node.iter_expressions())
        terms = [self._term(operand) for operand in operands]
        if isinstance(node, (*COMPARISONS, exp.Between)):
            terms = _alike(terms)
        kinds = {term.kind for term in terms}
        needed = OPERANDS.get(type(node))
        if len(kinds) != 1 or not kinds <= (ORDERED if needed is None else {needed}):
            raise OutsideSubset(f"{node.key} of such arguments")
        if isinstance(node, exp.Div):
            return _duckdb(DIVISION, Kind.DOUBLE, terms[1], *terms)
        for operand, term in zip(operands, terms, strict=True):
            operand.replace(term.node)
        return Term(node, Kind.BOOLEAN if isinstance(node, CONDITIONS) else Kind.INTEGER)

    def _within(self, node: exp.In) -> Term:
        value = self._term(node.this)
        query = node.args["query"].this
        columns = _Translation(self._relations, self._named).query(query)
        if len(columns) != 1 or columns[0].kind is not value.kind or value.kind not in ORDERED:
            raise OutsideSubset("IN of another type")
        node.set("this", value.node)
        return Term(node, Kind.BOOLEAN)

    def _case(self, node: exp.Case) -> Term:
        if node.this is not None or not node.args["ifs"]:
            raise OutsideSubset("such a CASE")
        kinds = set()
        for branch in node.args["ifs"]:
            self._condition(branch)
            value = self._term(branch.args["true"])
            branch.set("true", value.node)
            kinds.add(value.kind)
        if (default := node.args.get("default")) is not None:
            value = self._term(default)
            node.set("default", value.node)
            kinds.add(value.kind)
        if len(kinds) != 1:
            raise OutsideSubset("CASE of several types")
        return Term(node, kinds.pop())

    def _call(self, node: exp.Anonymous) -> Term:
        function, arguments = node.name.lower(), node.expressions
        if function == "count" and len(arguments) == 1:
            return self._count(arguments[0])
        if any(argument.is_star or isinstance(argument, exp.Distinct) for argument in arguments):
            raise OutsideSubset(f"{function} of such arguments")
        if function == "date_trunc" and len(arguments) == 2:
            return self._date_trunc(*arguments)
        terms = [self._term(argument) for argument in arguments]
        found = FUNCTIONS[function](terms) if terms and function in FUNCTIONS else None
        if found is None:
            raise OutsideSubset(f"{function} of such arguments")
        return found

    def _count(self, argument: exp.Expr) -> Term:
        if isinstance(argument, exp.Star):
            return _duckdb("count(*)", Kind.INTEGER)
        is_distinct = isinstance(argument, exp.Distinct)
        if is_distinct and len(argument.expressions) != 1:
            raise OutsideSubset("count of several columns")
        term = self._term(argument.expressions[0] if is_distinct else argument)
        if term.kind not in ORDERED and is_distinct:
            raise OutsideSubset("count(DISTINCT) of such a type")
        return _duckdb(f"count({'DISTINCT ' if is_distinct else ''}?)", Kind.INTEGER, term)

    def _date_trunc(self, unit: exp.Expr, time: exp.Expr) -> Term:
        unit_us = UNITS_US.get(unit.name.lower()) if unit.is_string else None
        term = self._term(time)
        if unit_us is None or term.kind is not Kind.TIME:
            raise OutsideSubset("date_trunc of such arguments")
        us = "epoch_us(?)"
        text = f"make_timestamptz({us} - (({us} % {unit_us}) + {unit_us}) % {unit_us})"
        return _duckdb(text, Kind.TIME, term, term)


def _duckdb(text: str, kind: Kind, *terms: Term) -> Term:
    """DuckDB's text with terms in place of question marks."""
    node = parse_one(text, dialect="duckdb")
    for place, term in zip(list(node.find_all(exp.Placeholder, bfs=False)), terms, strict=True):
        place.replace(term.node.copy())
    return Term(node, kind)


def _constant(node: exp.Expr) -> Term:
    """A literal with its type in Spark. Raises OutsideSubset."""
    match node:
        case exp.Boolean():
            return Term(node, Kind.BOOLEAN)
        case exp.Cast() if node.to.is_type("timestamptz") and isinstance(node.this, exp.Literal):
            return _duckdb(f"make_timestamptz({_time_us(node.this.name)})", Kind.TIME)
        case exp.Literal() if node.is_string:
            return Term(node, Kind.TEXT)
        case exp.Literal() | exp.Neg(this=exp.Literal(is_string=False)):
            digits = node.this.name if isinstance(node, exp.Neg) else node.name
            if int(digits) > BIGINT_MAX:
                raise OutsideSubset(f"the number {digits}")
            sign, of = "-" if isinstance(node, exp.Neg) else "", "INTEGER" if int(digits) <= INT_MAX else "BIGINT"
            return _duckdb(f"CAST({sign}{digits} AS {of})", Kind.INTEGER)
    raise OutsideSubset("such a constant")


def _argument(node: exp.Expr) -> Argument:
    if not isinstance(node, CONSTANTS):
        raise OutsideSubset("an argument that is no constant")
    term = _constant(node)
    return Argument(term.node.sql("duckdb"), term.kind)


def _time_us(text: str) -> int:
    """A time that both engines parse alike, in microseconds since 1970. Raises OutsideSubset."""
    match = TIME.fullmatch(text)
    if match is None or (match[4] and match[2] is None):
        raise OutsideSubset(f"the time '{text}'")
    try:
        at = datetime.fromisoformat(f"{match[1]}T{match[2] or '00:00:00'}+00:00")
    except ValueError:
        raise OutsideSubset(f"the time '{text}'") from None
    return (at - EPOCH) // timedelta(microseconds=1) + int((match[3] or "0").ljust(6, "0"))


def _limit(limit: exp.Expr) -> None:
    count = limit.expression
    if not isinstance(count, exp.Literal) or count.is_string or int(count.name) > INT_MAX:
        raise OutsideSubset("LIMIT")


def _ordinal(node: exp.Expr, items: Sequence[tuple[Term, str]]) -> int:
    if not isinstance(node, exp.Literal) or node.is_string or not 1 <= int(node.name) <= len(items):
        raise OutsideSubset("a constant in GROUP BY or ORDER BY")
    return int(node.name)


def _spark_name(node: exp.Expr) -> str:
    """The name that Spark gives an unnamed column. Raises OutsideSubset where that is not simple."""
    match node:
        case exp.Column():
            return node.name
        case exp.Anonymous(expressions=[argument]) if node.name.lower() in ("count", "sum", "min", "max", "avg"):
            function = node.name.lower()
            match argument:
                case exp.Column() if not argument.table:
                    return f"{function}({argument.name})"
                case exp.Distinct(expressions=[exp.Column() as column]) if function == "count" and not column.table:
                    return f"count(DISTINCT {column.name})"
                case exp.Star() | exp.Literal(this="1", is_string=False) if function == "count":
                    return "count(1)"
    raise OutsideSubset("a column without a name: give it one with AS")


def _alike(terms: Sequence[Term]) -> list[Term]:
    """The operands of a comparison: a string compared with a time is parsed as a time."""
    is_time = Kind.TIME in [term.kind for term in terms]
    return [
        _duckdb(f"make_timestamptz({_time_us(term.node.name)})", Kind.TIME)
        if is_time and isinstance(term.node, exp.Literal) and term.kind is Kind.TEXT
        else term
        for term in terms
    ]


def _of_integer(text: str, kind: Kind) -> Callable[[Sequence[Term]], Term | None]:
    """A function of one integer."""

    def write(terms: Sequence[Term]) -> Term | None:
        is_known = [term.kind for term in terms] == [Kind.INTEGER]
        return _duckdb(text, kind, *[terms[0]] * text.count("?")) if is_known else None

    return write


def _extreme(function: str) -> Callable[[Sequence[Term]], Term | None]:
    def write(terms: Sequence[Term]) -> Term | None:
        is_known = len(terms) == 1 and terms[0].kind in ORDERED
        return _duckdb(f"{function}(?)", terms[0].kind, *terms) if is_known else None

    return write


def _coalesce(terms: Sequence[Term]) -> Term | None:
    kinds = {term.kind for term in terms}
    is_known = len(kinds) == 1 and kinds <= ORDERED
    return _duckdb(f"coalesce({', '.join('?' * len(terms))})", terms[0].kind, *terms) if is_known else None


def _contains(terms: Sequence[Term]) -> Term | None:
    is_known = len(terms) == 2 and ELEMENTS.get(terms[0].kind) is terms[1].kind
    return _duckdb("list_contains(?, ?)", Kind.BOOLEAN, *terms) if is_known else None


def _size(terms: Sequence[Term]) -> Term | None:
    return _duckdb("len(?)", Kind.INTEGER, *terms) if len(terms) == 1 and terms[0].kind in ELEMENTS else None


DIVISION: Final = "(CASE WHEN ? = 0 THEN error('division by zero') ELSE CAST(? AS DOUBLE) / CAST(? AS DOUBLE) END)"
AVERAGE: Final = (
    f"(CASE WHEN sum(abs(CAST(? AS HUGEINT))) > {EXACT_DOUBLE_MAX} THEN error('too large a sum') "
    "ELSE CAST(sum(CAST(? AS HUGEINT)) AS DOUBLE) / CAST(count(?) AS DOUBLE) END)"
)
FUNCTIONS: Final[Mapping[str, Callable[[Sequence[Term]], Term | None]]] = {
    "sum": _of_integer("CAST(sum(?) AS BIGINT)", Kind.INTEGER),
    "avg": _of_integer(AVERAGE, Kind.DOUBLE),
    "min": _extreme("min"),
    "max": _extreme("max"),
    "coalesce": _coalesce,
    "array_contains": _contains,
    "array_size": _size,
    "size": _size,
}
"""By name: how to write a call for DuckDB, or None for arguments on which the engines may differ. `count` and
`date_trunc` are handled separately."""
