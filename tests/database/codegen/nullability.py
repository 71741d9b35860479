"""Decides which result columns and parameters of a statement may be NULL, from its parsed query.

A column counts as nullable unless its expression proves the opposite: a NOT NULL column that no
outer join can null, a constant, `coalesce` with a value, an aggregate that always has one.
A parameter counts as nullable where the statement handles NULL (`IS NULL`, `coalesce`,
`IS DISTINCT FROM`) or stores it in a nullable column.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.database.codegen.node_tree import Node, Value, walk

SELECT, UPDATE, INSERT = 1, 2, 3
RELATION, SUBQUERY, JOIN, FUNCTION, VALUES, CTE, GROUP = 0, 1, 2, 3, 5, 6, 9
EXISTS_LINK, EXPRESSION_LINK, ARRAY_LINK = 0, 4, 6

NEVER_NULL = {"NULLTEST", "BOOLEANTEST", "ARRAYEXPR", "ROWEXPR", "SQLVALUEFUNCTION"}
WRAPPERS = {"RELABELTYPE", "COERCEVIAIO", "ARRAYCOERCEEXPR", "CONVERTROWTYPEEXPR", "COLLATEEXPR"}
# Functions that return no NULL for arguments that are not NULL. Casts count as such, too.
TOTAL_FUNCTIONS = """
    abs array_append array_cat array_remove array_to_string btrim cardinality ceil ceiling
    char_length clock_timestamp concat concat_ws date_part date_trunc decode encode extract
    floor hashtext hashtextextended json_build_object jsonb_build_array jsonb_build_object
    jsonb_set jsonb_strip_nulls left length lower ltrim make_interval md5 mod nextval now
    num_nonnulls num_nulls octet_length pg_current_xact_id pg_get_serial_sequence
    pg_try_advisory_xact_lock power repeat replace right round row_to_json rtrim split_part
    starts_with statement_timestamp string_to_array strpos to_char to_json to_jsonb
    to_timestamp transaction_timestamp upper
"""
TOTAL_AGGREGATES = frozenset({"count"})
TOTAL_WINDOW_FUNCTIONS = frozenset(
    {"row_number", "rank", "dense_rank", "count", "ntile", "percent_rank", "cume_dist"}
)
# Operators that return NULL for a missing key.
PARTIAL_OPERATORS = frozenset({"->", "->>", "#>", "#>>"})


@dataclass(frozen=True)
class Catalog:
    """What PostgreSQL says of columns, functions and operators, by OID."""

    not_null: frozenset[tuple[int, int]]
    functions: dict[int, str]
    operators: dict[int, str]


@dataclass(frozen=True)
class Scope:
    """A query and the queries around it."""

    query: Node
    outer: "Scope | None" = None

    def above(self, levels: int) -> "Scope":
        scope = self
        for _ in range(levels):
            assert scope.outer is not None
            scope = scope.outer
        return scope


class Nullability:
    def __init__(self, query: Node, catalog: Catalog, null_parameters: frozenset[int]) -> None:
        self.query, self.catalog = query, catalog
        self.null_parameters = null_parameters | frozenset(self._find_null_parameters())

    def columns(self) -> list[bool]:
        """Whether each result column may be NULL."""
        scope = Scope(self.query)
        count = len(_outputs(self.query))
        return [self._output_is_null(scope, number) for number in range(1, count + 1)]

    def has_one_row(self) -> bool:
        """Whether the statement always returns exactly one row."""
        query = self.query
        if query.number("commandType") == INSERT:
            sources = [entry.number("rtekind") for entry in query.nodes("rtable")]
            return query.node("onConflict") is None and sources == [RELATION]
        if query.number("commandType") != SELECT or not query.is_empty("setOperations"):
            return False
        tree = query.node("jointree")
        has_source = tree is None or not tree.is_empty("fromlist") or tree.node("quals") is not None
        return _is_one_group(query) or not (has_source or query.flag("hasTargetSRFs"))

    # -- result columns ----------------------------------------------------------------------------

    def _output_is_null(self, scope: Scope, number: int) -> bool:
        if not scope.query.is_empty("setOperations"):
            branches = [
                entry.node("subquery")
                for entry in scope.query.nodes("rtable")
                if entry.number("rtekind") == SUBQUERY
            ]
            return any(
                self._output_is_null(Scope(branch, scope), number)
                for branch in branches
                if branch is not None
            )
        outputs = _outputs(scope.query)
        expression = outputs[number - 1].node("expr") if number <= len(outputs) else None
        return expression is None or self._is_null(scope, expression)

    def _is_null(self, scope: Scope, node: Node | None) -> bool:
        if node is None:
            return True
        kind = node.kind
        if kind == "VAR":
            return self._variable_is_null(scope, node)
        if kind == "CONST":
            return node.flag("constisnull")
        if kind == "PARAM":
            return node.number("paramid") in self.null_parameters
        if kind in NEVER_NULL:
            return False
        if kind in WRAPPERS:
            return self._is_null(scope, node.node("arg"))
        if kind == "COALESCEEXPR" or kind == "MINMAXEXPR":
            return all(self._is_null(scope, each) for each in node.nodes("args"))
        if kind == "CASEEXPR":
            results = [when.node("result") for when in node.nodes("args")]
            return any(self._is_null(scope, each) for each in [*results, node.node("defresult")])
        if kind == "SUBLINK":
            return self._sublink_is_null(scope, node)
        if kind in ("AGGREF", "WINDOWFUNC", "FUNCEXPR"):
            return self._call_is_null(scope, node)
        if kind in ("OPEXPR", "SCALARARRAYOPEXPR"):
            is_partial = self.catalog.operators.get(node.number("opno"), "->") in PARTIAL_OPERATORS
            return is_partial or self._any_is_null(scope, node.nodes("args"))
        if kind == "BOOLEXPR":
            return self._any_is_null(scope, node.nodes("args"))
        return kind != "DISTINCTEXPR"

    def _any_is_null(self, scope: Scope, nodes: Sequence[Node]) -> bool:
        return any(self._is_null(scope, each) for each in nodes)

    def _call_is_null(self, scope: Scope, node: Node) -> bool:
        if node.kind == "AGGREF":
            if self.catalog.functions.get(node.number("aggfnoid")) in TOTAL_AGGREGATES:
                return False
            has_row = not scope.query.is_empty("groupClause") and node.is_empty("aggfilter")
            arguments = [entry.node("expr") for entry in node.nodes("args")]
            return not has_row or any(self._is_null(scope, each) for each in arguments)
        if node.kind == "WINDOWFUNC":
            name = self.catalog.functions.get(node.number("winfnoid"))
            return name not in TOTAL_WINDOW_FUNCTIONS
        name = self.catalog.functions.get(node.number("funcid"))
        is_cast = node.number("funcformat") in (1, 2)
        if name in ("concat", "concat_ws", "num_nonnulls", "num_nulls"):
            return False
        if not is_cast and name not in TOTAL_FUNCTIONS.split():
            return True
        return self._any_is_null(scope, node.nodes("args"))

    def _sublink_is_null(self, scope: Scope, node: Node) -> bool:
        kind = node.number("subLinkType")
        if kind in (EXISTS_LINK, ARRAY_LINK):
            return False
        query = node.node("subselect")
        if kind != EXPRESSION_LINK or query is None:
            return True
        return not _is_one_group(query) or self._output_is_null(Scope(query, scope), 1)

    def _variable_is_null(self, scope: Scope, node: Node) -> bool:
        if not node.is_empty("varnullingrels"):
            return True
        if node.fields.get("varreturningtype", "0") != "0":
            return True  # OLD or NEW in RETURNING
        scope = scope.above(node.number("varlevelsup"))
        entry = scope.query.nodes("rtable")[node.number("varno") - 1]
        column = node.number("varattno")
        kind = entry.number("rtekind")
        if column <= 0:
            return kind != RELATION or column == 0
        if kind == RELATION:
            return (entry.number("relid"), column) not in self.catalog.not_null
        if kind == SUBQUERY:
            query = entry.node("subquery")
            return query is None or self._output_is_null(Scope(query, scope), column)
        if kind == JOIN:
            return self._is_null(scope, entry.nodes("joinaliasvars")[column - 1])
        if kind == GROUP:
            has_sets = not scope.query.is_empty("groupingSets")
            return has_sets or self._is_null(scope, entry.nodes("groupexprs")[column - 1])
        if kind == CTE:
            return self._cte_is_null(scope, entry, column)
        if kind == VALUES:
            rows = entry.fields.get("values_lists")
            lists = rows if isinstance(rows, list) else []
            return any(self._is_null(scope, _nth(row, column)) for row in lists)
        return kind != FUNCTION or self._function_is_null(scope, entry, column)

    def _cte_is_null(self, scope: Scope, entry: Node, column: int) -> bool:
        home = scope.above(entry.number("ctelevelsup"))
        for cte in home.query.nodes("cteList"):
            query = cte.node("ctequery")
            if cte.text("ctename") == entry.text("ctename") and query is not None:
                if entry.flag("self_reference"):
                    # The recursive part repeats what the other part begins with.
                    return False
                return self._output_is_null(Scope(query, home), column)
        return True

    def _function_is_null(self, scope: Scope, entry: Node, column: int) -> bool:
        """Elements of array parameters and ordinal numbers are not NULL."""
        passed = 0
        for function in entry.nodes("functions"):
            passed += function.number("funccolcount")
            call = function.node("funcexpr")
            if column <= passed:
                if call is None:
                    return True
                name = self.catalog.functions.get(call.number("funcid"))
                arguments = call.nodes("args")
                is_elements = name == "unnest" and all(_is_parameter(each) for each in arguments)
                return not (is_elements or name == "generate_series")
        return not entry.flag("funcordinality")

    # -- parameters --------------------------------------------------------------------------------

    def _find_null_parameters(self) -> Iterator[int]:
        for node in self.query.walk():
            if node.kind == "NULLTEST":
                yield from _parameters([node.node("arg")])
            elif node.kind in ("COALESCEEXPR", "DISTINCTEXPR"):
                yield from _parameters(node.nodes("args"))
        for scope in _queries(Scope(self.query)):
            if scope.query.number("commandType") in (INSERT, UPDATE):
                yield from self._stored_parameters(scope)

    def _stored_parameters(self, scope: Scope) -> Iterator[int]:
        rtable = scope.query.nodes("rtable")
        target = rtable[scope.query.number("resultRelation") - 1].number("relid")
        for entry in scope.query.nodes("targetList"):
            if (target, entry.number("resno")) not in self.catalog.not_null:
                for expression in self._sources(scope, entry.node("expr")):
                    yield from _parameters([expression])

    def _sources(self, scope: Scope, node: Node | None) -> Iterator[Node]:
        """The expressions behind a column of INSERT ... SELECT or VALUES."""
        node = _unwrap(node)
        if node is None:
            return
        if node.kind != "VAR" or node.number("varlevelsup"):
            yield node
            return
        entry = scope.query.nodes("rtable")[node.number("varno") - 1]
        column = node.number("varattno")
        if entry.number("rtekind") == SUBQUERY and (query := entry.node("subquery")) is not None:
            outputs = _outputs(query)
            if 0 < column <= len(outputs):
                yield from self._sources(Scope(query, scope), outputs[column - 1].node("expr"))
        elif entry.number("rtekind") == VALUES:
            rows = entry.fields.get("values_lists")
            for row in rows if isinstance(rows, list) else []:
                if (found := _nth(row, column)) is not None:
                    yield found


def _outputs(query: Node) -> list[Node]:
    name = "targetList" if query.number("commandType") == SELECT else "returningList"
    return [entry for entry in query.nodes(name) if not entry.flag("resjunk")]


def _is_one_group(query: Node) -> bool:
    """Whether all rows are aggregated into one."""
    return query.flag("hasAggs") and all(
        query.is_empty(name)
        for name in ("groupClause", "groupingSets", "havingQual", "limitCount", "limitOffset")
    )


def _queries(scope: Scope) -> Iterator[Scope]:
    for node in walk(scope.query):
        if node.kind == "QUERY":
            yield Scope(node)


def _nth(row: Value, column: int) -> Node | None:
    found = row[column - 1] if isinstance(row, list) and column <= len(row) else None
    return found if isinstance(found, Node) else None


def _unwrap(node: Node | None) -> Node | None:
    """The expression under casts."""
    while node is not None:
        if node.kind in WRAPPERS:
            node = node.node("arg")
        elif node.kind == "FUNCEXPR" and node.number("funcformat") in (1, 2):
            node = node.nodes("args")[0]
        else:
            return node
    return None


def _is_parameter(node: Node) -> bool:
    found = _unwrap(node)
    return found is not None and found.kind == "PARAM"


def _parameters(nodes: Sequence[Node | None]) -> Iterator[int]:
    for node in nodes:
        found = _unwrap(node)
        if found is not None and found.kind == "PARAM":
            yield found.number("paramid")
