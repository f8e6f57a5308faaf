"""The part of SQL that means the same to Spark and to DuckDB, and its text for DuckDB.

`sql` answers it without Spark. All else raises `OutsideSubset`, whatever it is, and Spark answers: only what is
listed here, of types that are listed here, goes to DuckDB. Where the two differ, the text says what Spark does: nulls
come first in ascending order, a sum is a BIGINT, numbers of a statement have Spark's types, a division by zero is an
error. An error of DuckDB is no answer either: Spark answers then, or raises its own.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import Final, NamedTuple, TypeVar

Item = TypeVar("Item")

TOKEN: Final = re.compile(
    r"(?P<space>[ \t\r\n]+)|(?P<number>\d+(?![\w.]))|(?P<word>[A-Za-z_]\w*)|(?P<text>'[^'\\\x00]*')"
    r"|(?P<sign><>|!=|<=|>=|==|[=<>(),.*+\-/])",
    re.ASCII,
)
COMMENTS: Final = re.compile(r"--|/\*")
"""A hint to Spark looks like one."""
KEYWORDS: Final = frozenset(
    re.findall(
        r"\w+",
        "all and anti any as asc asof between by case cross desc distinct else end escape except exists false for from "
        "full group having ilike in inner intersect is join lateral left like limit minus natural not null nulls on or "
        "order outer over pivot qualify right rlike select semi some tablesample then true union unpivot using values "
        "when where window with",
    )
)
"""Never a name here. Spark takes some of them for names, which is its own affair then."""
TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?)?(Z?)")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
INT_MAX, BIGINT_MAX = 2**31 - 1, 2**63 - 1
EXACT_DOUBLE_MAX: Final = 2**53
"""Up to here Spark's sum of doubles, which an average begins with, is the sum of the integers."""
UNITS_US: Final = {"second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6, "day": 86400 * 10**6}
COMPARISONS: Final = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", ">": ">", "<=": "<=", ">=": ">="}


class OutsideSubset(Exception):
    """What of a statement is left to Spark."""


class Kind(Enum):
    """What values a column has, as far as it matters here."""

    INTEGER = auto()
    DOUBLE = auto()
    TEXT = auto()
    TIME = auto()
    BOOLEAN = auto()
    INTEGERS = auto()
    TEXTS = auto()
    OTHER = auto()
    """A map, a struct, bytes: shown, and not computed with."""


ORDERED: Final = frozenset({Kind.INTEGER, Kind.TEXT, Kind.TIME, Kind.BOOLEAN})
ELEMENTS: Final = {Kind.INTEGERS: Kind.INTEGER, Kind.TEXTS: Kind.TEXT}


class Column(NamedTuple):
    """A column of what a statement reads or gives."""

    name: str
    kind: Kind


class Statement(NamedTuple):
    """A statement for DuckDB. Its columns are named `c0`, `c1`, ... there, since names may come twice."""

    text: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Name:
    """A column as it is written, or all columns: `*`."""

    qualifier: str | None
    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that the statement has."""

    kind: Kind
    value: int | str | bool


@dataclass(frozen=True, slots=True)
class Call:
    """A function or an operator over its arguments."""

    function: str
    arguments: tuple["Node", ...]
    is_distinct: bool = False


@dataclass(frozen=True, slots=True)
class Within:
    """Is a value among those of a query?"""

    value: "Node"
    query: "Query"


@dataclass(frozen=True, slots=True)
class Case:
    """CASE WHEN."""

    branches: tuple[tuple["Node", "Node"], ...]
    otherwise: "Node | None"


Node = Name | Literal | Call | Within | Case
ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class Source:
    """A table, view, function of time, or query in FROM; how it is joined to those before."""

    name: tuple[str, ...]
    arguments: tuple[Literal, ...] | None
    query: "Query | None"
    alias: str | None
    join: str = ""
    condition: Node | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """A term of ORDER BY."""

    node: Node
    is_descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Query:
    """A query as it is written."""

    named: Mapping[str, "Query"]
    is_distinct: bool
    items: tuple[tuple[Node, str | None], ...]
    sources: tuple[Source, ...]
    where: Node | None
    grouped: tuple[Node, ...]
    having: Node | None
    ordered: tuple[Order, ...]
    limit: int | None


class Relation(NamedTuple):
    """What FROM may name: its text for DuckDB, and its columns."""

    text: str
    columns: Sequence[Column]


Relations = Callable[[tuple[str, ...], "tuple[Literal, ...] | None"], Relation]
"""Gives a table or view by its parts of a name, or a function by its name and arguments. Raises OutsideSubset."""


def statement_of(text: str, relations: Relations) -> Statement:
    """The statement for DuckDB that gives what Spark gives. Raises OutsideSubset."""
    query = _Parser(text).whole()
    found = _Translation(relations, {}).query(query)
    for column in found.columns:
        if column.kind is Kind.DOUBLE and query.is_distinct:
            raise OutsideSubset("DISTINCT of doubles")
    return found


def _tokens(text: str) -> list[tuple[str, str]]:
    if COMMENTS.search(text):
        raise OutsideSubset("a comment")
    found: list[tuple[str, str]] = []
    place = 0
    while place < len(text):
        match = TOKEN.match(text, place)
        if match is None:
            raise OutsideSubset(f"{text[place : place + 10].split(maxsplit=1)[0]!r}")
        if match.lastgroup != "space":
            found.append((str(match.lastgroup), match[0]))
        place = match.end()
    return found


class _Parser:
    """Reads a statement, and raises at the first word that is not of the subset."""

    def __init__(self, text: str) -> None:
        self._tokens = [*_tokens(text), ("end", "")]
        self._place = 0

    def whole(self) -> Query:
        query = self._query()
        self._take("")
        return query

    @property
    def _next(self) -> str:
        """The next token, keywords in lower case."""
        kind, text = self._tokens[self._place]
        return text.lower() if kind == "word" else text

    def _is(self, *words: str) -> bool:
        """Are these the next tokens? Then they are taken."""
        ahead = self._tokens[self._place : self._place + len(words)]
        if [text.lower() for kind, text in ahead if kind != "text"] != list(words):
            return False
        self._place += len(words)
        return True

    def _take(self, *words: str) -> None:
        if not self._is(*words):
            self._refuse()

    def _refuse(self) -> None:
        raise OutsideSubset(self._tokens[self._place][1] or "the end of the statement")

    def _of(self, kind: str) -> str:
        found, text = self._tokens[self._place]
        if found != kind or (kind == "word" and text.lower() in KEYWORDS):
            self._refuse()
        self._place += 1
        return text

    def _query(self) -> Query:
        named: dict[str, Query] = {}
        if self._is("with"):
            named = self._named()
        self._take("select")
        is_distinct = self._is("distinct")
        items = self._listed(self._item)
        self._take("from")
        sources = [self._source("")]
        while join := self._join():
            sources.append(self._source(join))
        where = self._node() if self._is("where") else None
        grouped = self._listed(self._node) if self._is("group", "by") else ()
        having = self._node() if self._is("having") else None
        ordered = self._listed(self._order) if self._is("order", "by") else ()
        limit = int(self._of("number")) if self._is("limit") else None
        return Query(named, is_distinct, items, tuple(sources), where, grouped, having, ordered, limit)

    def _named(self) -> dict[str, Query]:
        found: dict[str, Query] = {}
        while True:
            name = self._of("word").lower()
            self._take("as", "(")
            query = self._query()
            self._take(")")
            if name in found:
                self._refuse()
            found[name] = query
            if not self._is(","):
                return found

    def _listed(self, one: Callable[[], Item]) -> tuple[Item, ...]:
        found = [one()]
        while self._is(","):
            found.append(one())
        return tuple(found)

    def _item(self) -> tuple[Node, str | None]:
        if self._is(ALL):
            return Name(None, ALL), None
        node = self._node()
        return node, self._alias()

    def _alias(self) -> str | None:
        if self._is("as"):
            return self._of("word")
        kind, text = self._tokens[self._place]
        return self._of("word") if kind == "word" and text.lower() not in KEYWORDS else None

    def _join(self) -> str:
        if self._is("join") or self._is("inner", "join"):
            return "JOIN"
        return "LEFT JOIN" if self._is("left", "join") or self._is("left", "outer", "join") else ""

    def _source(self, join: str) -> Source:
        name: tuple[str, ...] = ()
        query = arguments = None
        if self._is("("):
            query = self._query()
            self._take(")")
        else:
            name = (self._of("word").lower(),)
            while self._is("."):
                name = (*name, self._of("word").lower())
            if self._is("("):
                arguments = self._listed(self._value)
                self._take(")")
        alias = self._alias()
        condition = None
        if join:
            self._take("on")
            condition = self._node()
        return Source(name, arguments, query, alias.lower() if alias else None, join, condition)

    def _value(self) -> Literal:
        node = self._primary()
        if not isinstance(node, Literal):
            raise OutsideSubset("an argument that is no constant")
        return node

    def _order(self) -> Order:
        node = self._node()
        is_descending = self._is("desc")
        if not is_descending:
            self._is("asc")
        nulls_first = not is_descending
        if self._is("nulls", "first"):
            nulls_first = True
        elif self._is("nulls", "last"):
            nulls_first = False
        return Order(node, is_descending, nulls_first)

    def _node(self) -> Node:
        node = self._conjunction()
        while self._is("or"):
            node = Call("or", (node, self._conjunction()))
        return node

    def _conjunction(self) -> Node:
        node = self._negation()
        while self._is("and"):
            node = Call("and", (node, self._negation()))
        return node

    def _negation(self) -> Node:
        return Call("not", (self._negation(),)) if self._is("not") else self._predicate()

    def _predicate(self) -> Node:
        left = self._sum()
        if self._next in COMPARISONS:
            sign = COMPARISONS[self._next]
            self._place += 1
            return Call(sign, (left, self._sum()))
        if self._is("is"):
            is_not = self._is("not")
            self._take("null")
            return Call("is not null" if is_not else "is null", (left,))
        is_not = self._is("not")
        node = self._test(left)
        if node is None:
            if is_not:
                self._refuse()
            return left
        return Call("not", (node,)) if is_not else node

    def _test(self, left: Node) -> Node | None:
        if self._is("between"):
            low = self._sum()
            self._take("and")
            return Call("and", (Call(">=", (left, low)), Call("<=", (left, self._sum()))))
        if self._is("like"):
            return Call("like", (left, Literal(Kind.TEXT, self._of("text")[1:-1])))
        if self._is("in"):
            self._take("(")
            if self._next in ("select", "with"):
                node: Node = Within(left, self._query())
            else:
                node = Call("in", (left, *self._listed(self._sum)))
            self._take(")")
            return node
        return None

    def _sum(self) -> Node:
        node = self._product()
        while self._next in ("+", "-"):
            sign = self._next
            self._place += 1
            node = Call(sign, (node, self._product()))
        return node

    def _product(self) -> Node:
        node = self._primary()
        while self._next in ("*", "/"):
            sign = self._next
            self._place += 1
            node = Call(sign, (node, self._primary()))
        return node

    def _primary(self) -> Node:
        kind, text = self._tokens[self._place]
        word = text.lower()
        if kind == "number" or (word == "-" and self._tokens[self._place + 1][0] == "number"):
            is_negative = self._is("-")
            return Literal(Kind.INTEGER, int(self._of("number")) * (-1 if is_negative else 1))
        if kind == "text":
            return Literal(Kind.TEXT, self._of("text")[1:-1])
        if self._is("("):
            node = self._node()
            self._take(")")
            return node
        if word in ("true", "false"):
            self._place += 1
            return Literal(Kind.BOOLEAN, word == "true")
        if self._is("case"):
            return self._case()
        if word == "timestamp" and self._tokens[self._place + 1][0] == "text":
            self._place += 1
            return Literal(Kind.TIME, _time_us(self._of("text")[1:-1]))
        return self._named_node()

    def _case(self) -> Node:
        branches: list[tuple[Node, Node]] = []
        while self._is("when"):
            condition = self._node()
            self._take("then")
            branches.append((condition, self._node()))
        otherwise = self._node() if self._is("else") else None
        self._take("end")
        if not branches:
            self._refuse()
        return Case(tuple(branches), otherwise)

    def _named_node(self) -> Node:
        name = self._of("word")
        if self._is("("):
            if self._is(ALL, ")"):
                return Call(name.lower(), (Name(None, ALL),))
            is_distinct = self._is("distinct")
            arguments = self._listed(self._node)
            self._take(")")
            return Call(name.lower(), arguments, is_distinct)
        if self._is("."):
            return Name(name.lower(), ALL) if self._is(ALL) else Name(name.lower(), self._of("word"))
        return Name(None, name)


def _time_us(text: str) -> int:
    """A time as both engines read it, in microseconds since 1970. Raises OutsideSubset."""
    match = TIME.fullmatch(text)
    if match is None or (match[4] and match[2] is None):
        raise OutsideSubset(f"the time '{text}'")
    try:
        at = datetime.fromisoformat(f"{match[1]}T{match[2] or '00:00:00'}+00:00")
    except ValueError:
        raise OutsideSubset(f"the time '{text}'") from None
    return (at - EPOCH) // timedelta(microseconds=1) + int((match[3] or "0").ljust(6, "0"))


class Term(NamedTuple):
    """A part of a statement for DuckDB. `column`: where it is a column of a source and nothing else."""

    text: str
    kind: Kind
    column: str | None = None


class _Scope:
    """The columns that a query reads."""

    def __init__(self) -> None:
        self._columns: list[tuple[str, Column, str]] = []
        """Of each the name of its source, itself, its text."""

    def add(self, source: str, number: int, columns: Sequence[Column], texts: Sequence[str]) -> None:
        if any(source == other for other, _, _ in self._columns):
            raise OutsideSubset(f"two sources by the name {source}")
        self._columns += [(source, column, f"s{number}.{text}") for column, text in zip(columns, texts, strict=True)]

    def has(self, name: str) -> bool:
        """Is there a column of this name, in any case?"""
        return any(column.name.lower() == name.lower() for _, column, _ in self._columns)

    def find(self, name: Name) -> Term:
        """The one column that is meant. Raises OutsideSubset."""
        found = [
            Term(text, column.kind, column.name)
            for source, column, text in self._columns
            if column.name == name.name and name.qualifier in (None, source)
        ]
        # a struct of the name of a source would give its field instead
        if len(found) != 1 or (name.qualifier is not None and self.has(name.qualifier)):
            raise OutsideSubset(f"the name {name.name}")
        return found[0]

    def all_of(self, qualifier: str | None) -> list[Term]:
        """The columns that `*` means."""
        found = [
            Term(text, column.kind, column.name)
            for source, column, text in self._columns
            if qualifier in (None, source)
        ]
        if not found or (qualifier is not None and self.has(qualifier)):
            raise OutsideSubset("*")
        return found


class NamedQuery(NamedTuple):
    """A query of WITH, and the queries that it may name."""

    query: Query
    named: "Named"


Named = Mapping[str, NamedQuery]


class _Translation:
    """Finds what the names of a query are, checks types, and writes the text for DuckDB."""

    def __init__(self, relations: Relations, named: "Named") -> None:
        self._relations = relations
        self._named = named
        self._scope = _Scope()

    def query(self, query: Query) -> Statement:
        for name, part in query.named.items():
            # it sees those that are written before it
            self._named = {**self._named, name: NamedQuery(part, self._named)}
        sources = " ".join(self._source(number, source) for number, source in enumerate(query.sources))
        items = self._items(query)
        texts = ", ".join(f"{item.text} AS c{number}" for number, (item, _) in enumerate(items))
        text = f"SELECT {'DISTINCT ' if query.is_distinct else ''}{texts} FROM {sources}"
        if query.where is not None:
            text += f" WHERE {self._condition(query.where)}"
        names = {name.lower(): node for node, name in query.items if name is not None}
        if query.grouped:
            text += f" GROUP BY {', '.join(self._group(node, query, items, names) for node in query.grouped)}"
        if query.having is not None:
            if not query.grouped:
                raise OutsideSubset("HAVING without GROUP BY")
            text += f" HAVING {self._condition(query.having)}"
        if query.ordered:
            text += f" ORDER BY {', '.join(self._order(order, query, items) for order in query.ordered)}"
        if query.limit is not None:
            if query.limit > INT_MAX:
                raise OutsideSubset("LIMIT")
            text += f" LIMIT {query.limit}"
        return Statement(text, tuple(Column(name, item.kind) for item, name in items))

    def _source(self, number: int, source: Source) -> str:
        part = NamedQuery(source.query, self._named) if source.query is not None else None
        if len(source.name) == 1 and source.arguments is None:
            part = self._named.get(source.name[0])
        if part is not None:
            inner = _Translation(self._relations, part.named).query(part.query)
            text, columns = f"({inner.text})", inner.columns
            texts = [f"c{index}" for index in range(len(columns))]
        else:
            relation = self._relations(source.name, source.arguments)
            text, columns = relation.text, tuple(relation.columns)
            texts = [f'"{column.name}"' for column in columns]
        self._scope.add(source.alias or (source.name[-1] if source.name else f" {number}"), number, columns, texts)
        joined = f" ON {self._condition(source.condition)}" if source.condition is not None else ""
        return f"{source.join} {text} AS s{number}{joined}".strip()

    def _items(self, query: Query) -> list[tuple[Term, str]]:
        """What the query gives, and under which names."""
        found: list[tuple[Term, str]] = []
        for node, alias in query.items:
            if isinstance(node, Name) and node.name == ALL:
                if alias is not None or query.grouped:
                    raise OutsideSubset("*")
                found += [(term, str(term.column)) for term in self._scope.all_of(node.qualifier)]
                continue
            term = self._term(node)
            if alias is not None and self._scope.has(alias) and term.column != alias:
                # which of the two a name means elsewhere in the statement differs
                raise OutsideSubset(f"the name {alias}, which a column has, too")
            found.append((term, alias or _spark_name(node)))
        return found

    def _group(self, node: Node, query: Query, items: Sequence[tuple[Term, str]], names: Mapping[str, Node]) -> str:
        if isinstance(node, Literal):
            return self._ordinal(node, items)
        if isinstance(node, Name) and node.qualifier is None and not self._scope.has(node.name):
            node = names.get(node.name.lower(), node)
        term = self._term(node)
        if term.kind in (Kind.OTHER, Kind.DOUBLE):
            raise OutsideSubset("GROUP BY of such a type")
        return term.text

    def _ordinal(self, node: Literal, items: Sequence[tuple[Term, str]]) -> str:
        if not isinstance(node.value, int) or node.kind is not Kind.INTEGER or not 1 <= node.value <= len(items):
            raise OutsideSubset("a constant in GROUP BY or ORDER BY")
        return str(node.value)

    def _order(self, order: Order, query: Query, items: Sequence[tuple[Term, str]]) -> str:
        node = order.node
        place = None
        if isinstance(node, Literal):
            place = int(self._ordinal(node, items))
        elif isinstance(node, Name) and node.qualifier is None:
            found = [number for number, (_, name) in enumerate(items, 1) if name == node.name]
            if len(found) > 1 or (not found and any(name.lower() == node.name.lower() for _, name in items)):
                raise OutsideSubset(f"the name {node.name}")
            place = found[0] if found else None
        if place is None and query.is_distinct:
            raise OutsideSubset("ORDER BY of what a DISTINCT does not give")
        term = items[place - 1][0] if place is not None else self._term(node)
        if term.kind not in ORDERED | {Kind.DOUBLE}:
            raise OutsideSubset("ORDER BY of such a type")
        text = term.text if place is None else str(place)
        return f"{text} {'DESC' if order.is_descending else 'ASC'} NULLS {'FIRST' if order.nulls_first else 'LAST'}"

    def _condition(self, node: Node) -> str:
        term = self._term(node)
        if term.kind is not Kind.BOOLEAN:
            raise OutsideSubset("a condition that is not boolean")
        return term.text

    def _term(self, node: Node) -> Term:
        match node:
            case Name():
                return self._scope.find(node)
            case Literal():
                return literal(node)
            case Within():
                return self._within(node)
            case Case():
                return self._case(node)
            case Call():
                return self._call(node)

    def _within(self, node: Within) -> Term:
        value = self._term(node.value)
        inner = _Translation(self._relations, self._named).query(node.query)
        if len(inner.columns) != 1 or inner.columns[0].kind is not value.kind or value.kind not in ORDERED:
            raise OutsideSubset("IN of another type")
        return Term(f"({value.text} IN ({inner.text}))", Kind.BOOLEAN)

    def _case(self, node: Case) -> Term:
        whens = [(self._condition(condition), self._term(value)) for condition, value in node.branches]
        otherwise = self._term(node.otherwise) if node.otherwise is not None else None
        kinds = {value.kind for _, value in whens} | ({otherwise.kind} if otherwise else set())
        if len(kinds) != 1:
            raise OutsideSubset("CASE of several types")
        text = " ".join(f"WHEN {condition} THEN {value.text}" for condition, value in whens)
        text += f" ELSE {otherwise.text}" if otherwise else ""
        return Term(f"(CASE {text} END)", kinds.pop())

    def _call(self, node: Call) -> Term:
        if node.function == "count":
            return self._count(node)
        if node.is_distinct or any(isinstance(argument, Name) and argument.name == ALL for argument in node.arguments):
            raise OutsideSubset(f"{node.function} of such arguments")
        if node.function == "date_trunc":
            return self._date_trunc(node)
        terms = [self._term(argument) for argument in node.arguments]
        if node.function in COMPARISONS:
            terms = _alike(terms, node.arguments)
        write = FUNCTIONS.get(node.function)
        found = write(terms) if write is not None else None
        if found is None:
            raise OutsideSubset(f"{node.function} of such arguments")
        return found

    def _count(self, node: Call) -> Term:
        if len(node.arguments) != 1:
            raise OutsideSubset("count of several columns")
        argument = node.arguments[0]
        if argument == Name(None, ALL):
            if node.is_distinct:
                raise OutsideSubset("count(DISTINCT *)")
            return Term("count(*)", Kind.INTEGER)
        term = self._term(argument)
        if term.kind not in ORDERED and node.is_distinct:
            raise OutsideSubset("count(DISTINCT) of such a type")
        return Term(f"count({'DISTINCT ' if node.is_distinct else ''}{term.text})", Kind.INTEGER)

    def _date_trunc(self, node: Call) -> Term:
        unit, time = node.arguments if len(node.arguments) == 2 else (None, None)
        unit_us = UNITS_US.get(str(unit.value).lower()) if isinstance(unit, Literal) else None
        term = self._term(time) if time is not None else None
        if unit_us is None or term is None or term.kind is not Kind.TIME:
            raise OutsideSubset("date_trunc of such arguments")
        us = f"epoch_us({term.text})"
        return Term(f"make_timestamptz({us} - (({us} % {unit_us}) + {unit_us}) % {unit_us})", Kind.TIME)


def literal(node: Literal) -> Term:
    """A constant with the type that it has in Spark. Raises OutsideSubset."""
    match node.kind:
        case Kind.INTEGER:
            number = int(node.value)
            if abs(number) > BIGINT_MAX:
                raise OutsideSubset(f"the number {number}")
            return Term(f"CAST({number} AS {'INTEGER' if abs(number) <= INT_MAX else 'BIGINT'})", node.kind)
        case Kind.TIME:
            return Term(f"make_timestamptz({node.value})", node.kind)
        case Kind.BOOLEAN:
            return Term("true" if node.value else "false", node.kind)
        case _:
            return Term(f"'{node.value}'", node.kind)


def _spark_name(node: Node) -> str:
    """The name that Spark gives to what has none. Raises OutsideSubset where that is not simple."""
    match node:
        case Name():
            return node.name
        case Call("count", (Name(None, "*"),), False) | Call("count", (Literal(Kind.INTEGER, 1),), False):
            return "count(1)"
        case Call("count", (Name(None, name),), True):
            return f"count(DISTINCT {name})"
        case Call("count" | "sum" | "min" | "max" | "avg", (Name(None, name),), False):
            return f"{node.function}({name})"
    raise OutsideSubset("a column without a name: give it one with AS")


def _alike(terms: Sequence[Term], nodes: Sequence[Node]) -> list[Term]:
    """Both sides of a comparison: a text compared with a time is read as one."""
    kinds = [term.kind for term in terms]
    return [
        literal(Literal(Kind.TIME, _time_us(str(node.value))))
        if isinstance(node, Literal) and node.kind is Kind.TEXT and Kind.TIME in kinds
        else term
        for term, node in zip(terms, nodes, strict=True)
    ]


def _same_ordered(terms: Sequence[Term]) -> bool:
    return len({term.kind for term in terms}) == 1 and terms[0].kind in ORDERED


def _comparison(sign: str) -> Callable[[Sequence[Term]], Term | None]:
    def write(terms: Sequence[Term]) -> Term | None:
        return Term(f"({terms[0].text} {sign} {terms[1].text})", Kind.BOOLEAN) if _same_ordered(terms) else None

    return write


def _logical(sign: str) -> Callable[[Sequence[Term]], Term | None]:
    def write(terms: Sequence[Term]) -> Term | None:
        if any(term.kind is not Kind.BOOLEAN for term in terms):
            return None
        return Term(f"({f' {sign} '.join(term.text for term in terms)})", Kind.BOOLEAN)

    return write


def _negation(terms: Sequence[Term]) -> Term | None:
    return Term(f"(NOT {terms[0].text})", Kind.BOOLEAN) if terms[0].kind is Kind.BOOLEAN else None


def _null_test(sign: str) -> Callable[[Sequence[Term]], Term | None]:
    return lambda terms: Term(f"({terms[0].text} {sign})", Kind.BOOLEAN)


def _listed_in(terms: Sequence[Term]) -> Term | None:
    if not _same_ordered(terms):
        return None
    return Term(f"({terms[0].text} IN ({', '.join(term.text for term in terms[1:])}))", Kind.BOOLEAN)


def _like(terms: Sequence[Term]) -> Term | None:
    if terms[0].kind is not Kind.TEXT:
        return None
    return Term(f"({terms[0].text} LIKE {terms[1].text})", Kind.BOOLEAN)


def _arithmetic(sign: str) -> Callable[[Sequence[Term]], Term | None]:
    def write(terms: Sequence[Term]) -> Term | None:
        if any(term.kind is not Kind.INTEGER for term in terms):
            return None
        return Term(f"({terms[0].text} {sign} {terms[1].text})", Kind.INTEGER)

    return write


def _division(terms: Sequence[Term]) -> Term | None:
    if any(term.kind is not Kind.INTEGER for term in terms):
        return None
    upper, lower = (term.text for term in terms)
    return Term(
        f"(CASE WHEN {lower} = 0 THEN error('division by zero') "
        f"ELSE CAST({upper} AS DOUBLE) / CAST({lower} AS DOUBLE) END)",
        Kind.DOUBLE,
    )


def _sum(terms: Sequence[Term]) -> Term | None:
    if len(terms) != 1 or terms[0].kind is not Kind.INTEGER:
        return None
    return Term(f"CAST(sum({terms[0].text}) AS BIGINT)", Kind.INTEGER)


def _average(terms: Sequence[Term]) -> Term | None:
    if len(terms) != 1 or terms[0].kind is not Kind.INTEGER:
        return None
    value = f"CAST({terms[0].text} AS HUGEINT)"
    return Term(
        f"(CASE WHEN sum(abs({value})) > {EXACT_DOUBLE_MAX} THEN error('too large a sum') "
        f"ELSE CAST(sum({value}) AS DOUBLE) / CAST(count({value}) AS DOUBLE) END)",
        Kind.DOUBLE,
    )


def _extreme(function: str) -> Callable[[Sequence[Term]], Term | None]:
    def write(terms: Sequence[Term]) -> Term | None:
        if len(terms) != 1 or terms[0].kind not in ORDERED:
            return None
        return Term(f"{function}({terms[0].text})", terms[0].kind)

    return write


def _coalesce(terms: Sequence[Term]) -> Term | None:
    if not _same_ordered(terms):
        return None
    return Term(f"coalesce({', '.join(term.text for term in terms)})", terms[0].kind)


def _contains(terms: Sequence[Term]) -> Term | None:
    if len(terms) != 2 or ELEMENTS.get(terms[0].kind) is not terms[1].kind:
        return None
    return Term(f"list_contains({terms[0].text}, {terms[1].text})", Kind.BOOLEAN)


def _size(terms: Sequence[Term]) -> Term | None:
    if len(terms) != 1 or terms[0].kind not in ELEMENTS:
        return None
    return Term(f"len({terms[0].text})", Kind.INTEGER)


FUNCTIONS: Final[Mapping[str, Callable[[Sequence[Term]], Term | None]]] = {
    **{sign: _comparison(sign) for sign in COMPARISONS.values()},
    "and": _logical("AND"),
    "or": _logical("OR"),
    "not": _negation,
    "is null": _null_test("IS NULL"),
    "is not null": _null_test("IS NOT NULL"),
    "in": _listed_in,
    "like": _like,
    "+": _arithmetic("+"),
    "-": _arithmetic("-"),
    "*": _arithmetic("*"),
    "/": _division,
    "sum": _sum,
    "avg": _average,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "coalesce": _coalesce,
    "array_contains": _contains,
    "array_size": _size,
    "size": _size,
}
"""By name, how a call is written for DuckDB, or None for arguments of which the two engines may say different things.
`count` and `date_trunc` are written by themselves."""
