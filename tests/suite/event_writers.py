"""Which events the code writes, found in its text: verbs in SQL, and what reaches `record`.

A verb is followed from the call of `record` back through functions that hand on their parameter
`verb`, through `Ending` and through parameters of statements, to the strings that are written down.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

APPS = ("project", "pools", "slots", "claims")
INSERT = re.compile(
    r"INSERT INTO kernel_event \((?P<columns>[^)]*)\)\s*(?:SELECT|VALUES \()\s*"
    r"(?:'(?P<verb>\w+)'|%\((?P<parameter>\w+)\)s|(?P<column>verb)\b|(?P<log>%s))"
)
AS_VERB = re.compile(r"'(\w+)' AS verb\b")
READ = re.compile(r"\bverb (?:=|<>) '(\w+)'")
LINKED = re.compile(r"[?&]q=verb:(\w+)")
STATEMENT = re.compile(r"^-- (\w+)[\^$]?:", re.M)
RECORD = ("project.kernel.events.log", "record")
ENDING = ("claims.lifecycle.release", "Ending")
ID_COLUMNS = ("claim_id", "slot_id", "member_id", "pool_id")


class Written(NamedTuple):
    verb: str
    ids: frozenset[str]  # what the event names
    place: str
    optional: frozenset[str] = frozenset()  # ids that it may leave out


@dataclass(frozen=True)
class Sink:
    """A function whose parameter becomes a verb."""

    at: int
    parameter: str
    pattern: str  # late_{}
    ids: frozenset[str]
    default: str = ""
    optional: frozenset[str] = frozenset()


@dataclass
class Module:
    name: str
    path: str
    tree: ast.Module
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    calls: list[tuple[ast.Call, ast.FunctionDef | None]] = field(default_factory=list)
    strings: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        todo: list[tuple[ast.AST, ast.FunctionDef | None]] = [(self.tree, None)]
        while todo:
            node, scope = todo.pop()
            scope = node if isinstance(node, ast.FunctionDef) else scope
            # Without fields, such as Load: a third of all nodes, which write nothing.
            todo += [(child, scope) for child in ast.iter_child_nodes(node) if child._fields]
            if isinstance(node, ast.Call):
                self.calls.append((node, scope))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.strings.append((node.lineno, node.value))
            elif isinstance(node, ast.ImportFrom):
                package = self.name.split(".")[: -node.level] if node.level else []
                source = ".".join([*package, *([node.module] if node.module else [])])
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = (source, alias.name)

    def callee(self, call: ast.Call) -> tuple[str, str]:
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        return self.imports.get(name, (self.name, name))


def ids_in(names: Any) -> frozenset[str]:
    return frozenset(names) & set(ID_COLUMNS)


def default_values(arguments: ast.arguments) -> dict[str, str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(positional[::-1], arguments.defaults[::-1], strict=False),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return {
        argument.arg: str(value.value)
        for argument, value in pairs
        if isinstance(value, ast.Constant)
    }


def left_out(keywords: dict[str, ast.expr], scope: ast.FunctionDef | None) -> frozenset[str]:
    """The ids that come from a parameter with the default None."""
    defaults = {} if scope is None else default_values(scope.args)
    return frozenset(
        name
        for name in ids_in(keywords)
        if isinstance(value := keywords[name], ast.Name) and defaults.get(value.id) == "None"
    )


class Code:
    """The product's modules and statements."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules: dict[str, Module] = {}
        self.statements: dict[str, tuple[str, str]] = {}  # their text and where it stands
        self.faults: list[str] = []
        self.found: list[Written] = []
        for app in APPS:
            for path in sorted((root / app).rglob("*.sql")):
                place = str(path.relative_to(root))
                names = STATEMENT.split(path.read_text())
                for name, text in zip(names[1::2], names[2::2], strict=True):
                    self.statements[f"{place}:{name}"] = (name, text)
            for path in sorted((root / app).rglob("*.py")):
                place = path.relative_to(root)
                name = ".".join(place.with_suffix("").parts).removesuffix(".__init__")
                self.modules[name] = Module(name, str(place), ast.parse(path.read_text()))

    @cached_property
    def written(self) -> list[Written]:
        for place, (_, text) in self.texts():
            for match in INSERT.finditer(text):
                ids = ids_in(match["columns"].replace(",", " ").split())
                verbs = AS_VERB.findall(text) if match["column"] else [match["verb"]]
                self.found += [Written(verb, ids, place) for verb in verbs if verb]
        sinks = {RECORD: Sink(0, "verb", "{}", frozenset())}
        sinks |= {ENDING: Sink(2, "verb", "{}", self.parameters["give_back"], "release")}
        grown = True
        while grown:  # a function that passes its parameter on is a sink too
            grown = False
            for module in self.modules.values():
                for key, sink in self._hands_on(module, sinks):
                    grown, sinks[key] = grown or key not in sinks, sinks.get(key, sink)
        for module in self.modules.values():
            self._follow(module, sinks)
        return self.found

    def texts(self) -> Iterator[tuple[str, tuple[str, str]]]:
        yield from self.statements.items()
        for module in self.modules.values():
            for line, text in module.strings:
                yield f"{module.path}:{line}", ("", text)

    @cached_property
    def parameters(self) -> dict[str, frozenset[str]]:
        """The statements whose verb is a parameter, and what their events name."""
        return {
            name: ids_in(match["columns"].replace(",", " ").split())
            for name, text in self.statements.values()
            for match in INSERT.finditer(text)
            if match["parameter"]
        }

    def read(self) -> dict[str, str]:
        """The verbs that statements and links of pages ask for, and where."""
        found = {verb: place for place, (_, text) in self.texts() for verb in READ.findall(text)}
        for path in sorted((self.root / "templates").rglob("*.html")):
            found |= dict.fromkeys(LINKED.findall(path.read_text()), path.name)
        return found

    def _given(
        self,
        module: Module,
        call: ast.Call,
        scope: ast.FunctionDef | None,
        sinks: dict[tuple[str, str], Sink],
    ) -> tuple[ast.expr | None, Sink] | None:
        """What a call hands to a sink as its verb."""
        keywords = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        sink = sinks.get(module.callee(call))
        if sink is None:
            named = [call.func.attr] if isinstance(call.func, ast.Attribute) else []
            named += [a.value for a in call.args[:1] if isinstance(a, ast.Constant)]
            ids = next((i for name, i in self.parameters.items() if name in named), None)
            if ids is None or "verb" not in keywords:
                return None
            sink = Sink(-1, "verb", "{}", ids)
        elif module.callee(call) == RECORD:
            sink = Sink(0, "verb", "{}", ids_in(keywords), optional=left_out(keywords, scope))
        given = keywords.get(sink.parameter)
        if given is None and 0 <= sink.at < len(call.args):
            given = call.args[sink.at]
        return given, sink

    def _hands_on(
        self, module: Module, sinks: dict[tuple[str, str], Sink]
    ) -> Iterator[tuple[tuple[str, str], Sink]]:
        for call, scope in module.calls:
            value, sink = self._given(module, call, scope, sinks) or (None, None)
            if value is None or sink is None or scope is None:
                continue
            arguments = scope.args
            defaults = default_values(arguments)
            positions = [each.arg for each in [*arguments.posonlyargs, *arguments.args]]
            for name, pattern in self._names(value):
                if name in positions or name in [each.arg for each in arguments.kwonlyargs]:
                    yield (
                        (module.name, scope.name),
                        Sink(
                            positions.index(name) if name in positions else -1,
                            name,
                            sink.pattern.format(pattern),
                            sink.ids,
                            defaults.get(name, ""),
                        ),
                    )

    def _names(self, node: ast.expr) -> Iterator[tuple[str, str]]:
        """The variables that an expression may be, and what is made of them: late_{}."""
        match node:
            case ast.Name(id=name):
                yield name, "{}"
            case ast.IfExp(body=body, orelse=other):
                yield from [*self._names(body), *self._names(other)]
            case ast.Subscript(value=ast.JoinedStr() as text) | (ast.JoinedStr() as text):
                pieces = [v.value if isinstance(v, ast.Constant) else "{}" for v in text.values]
                for value in text.values:
                    if isinstance(value, ast.FormattedValue) and isinstance(value.value, ast.Name):
                        yield value.value.id, "".join(map(str, pieces))

    def _follow(self, module: Module, sinks: dict[tuple[str, str], Sink]) -> None:
        for call, scope in module.calls:
            value, sink = self._given(module, call, scope, sinks) or (None, None)
            if sink is None:
                continue
            place = f"{module.path}:{call.lineno}"
            verbs = [sink.default] if value is None else self._strings(module, value, scope)
            if verbs is None:
                self.faults.append(f"{place}: {ast.unparse(value or call)}")
            for verb in filter(None, verbs or ()):
                name = sink.pattern.format(verb)
                self.found.append(Written(name, sink.ids, place, sink.optional))

    def _strings(
        self, module: Module, node: ast.expr, scope: ast.FunctionDef | None
    ) -> list[str] | None:
        """The verbs that an expression can be; none of its own where it is a parameter."""
        match node:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.IfExp(body=body, orelse=other):
                both = [self._strings(module, each, scope) for each in (body, other)]
                return None if None in both else [text for each in both for text in each or ()]
            case ast.Attribute(attr="verb"):  # of an Ending, whose constructor is followed
                return []
            case ast.Subscript(value=ast.Name(id=name)):  # VERBS[outcome]
                table = self._constant(module, name)
                if isinstance(table, ast.Dict):
                    return [v.value for v in table.values if isinstance(v, ast.Constant)]
            case ast.Subscript(value=ast.JoinedStr()) | ast.JoinedStr():
                return []  # made of a parameter
            case ast.Name(id=name):
                if scope is not None:
                    arguments = [*scope.args.args, *scope.args.kwonlyargs]
                    if name in [argument.arg for argument in arguments]:
                        return []
                    return self._local(module, name, scope)
                value = self._constant(module, name)
                return None if value is None else self._strings(module, value, scope)
        return None

    def _local(self, module: Module, name: str, scope: ast.FunctionDef) -> list[str] | None:
        for node in ast.walk(scope):
            match node:
                case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                    return self._strings(module, value, scope)
                case ast.For(target=ast.Tuple(elts=targets), iter=ast.Tuple(elts=rows)):
                    names = [each.id for each in targets if isinstance(each, ast.Name)]
                    if name in names:
                        cells = [
                            r.elts[names.index(name)] for r in rows if isinstance(r, ast.Tuple)
                        ]
                        return [c.value for c in cells if isinstance(c, ast.Constant)]
        value = self._constant(module, name)
        return None if value is None else self._strings(module, value, scope)

    def _constant(self, module: Module, name: str) -> ast.expr | None:
        source, name = module.imports.get(name, (module.name, name))
        for node in self.modules[source].tree.body if source in self.modules else ():
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                return node.value
        return None
