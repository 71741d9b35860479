"""The agent runs on Python 3.8: its syntax, and only the standard library of that version."""

import ast
from pathlib import Path

import pytest

AGENT = Path(__file__).resolve().parents[3] / "slots" / "agent"
MODULES = sorted(AGENT.rglob("*.py"))
# Methods, functions and arguments newer than 3.8 that are easily written without thinking. Names of
# methods alone: no type is known here.
NEWER_ATTRIBUTES = {
    "removeprefix", "removesuffix", "is_relative_to", "with_stem", "readlink", "hardlink_to",
    "bit_count", "randbytes", "pairwise", "batched", "file_digest", "to_thread", "add_note",
    "unparse", "lcm", "nextafter", "is_junction", "waitstatus_to_exitcode", "StrEnum",
}  # fmt: skip
NEWER_MODULES = {"tomllib", "zoneinfo", "graphlib"}
NEWER_NAMES = {"aiter", "anext", "ExceptionGroup", "BaseExceptionGroup", "EncodingWarning"}
NEWER_FROM = {
    "functools": {"cache"},
    "contextlib": {"aclosing", "chdir"},
    "itertools": {"pairwise", "batched"},
    "enum": {"StrEnum"},
    "typing": {
        "Annotated",
        "ParamSpec",
        "TypeAlias",
        "TypeGuard",
        "Concatenate",
        "Self",
        "Never",
        "assert_never",
        "override",
    },
    "datetime": {"UTC"},
    "dataclasses": {"KW_ONLY"},
    "types": {"NoneType", "UnionType", "EllipsisType"},
}
NEWER_ARGUMENTS = {
    ("dataclass", "slots"), ("dataclass", "kw_only"), ("field", "kw_only"), ("zip", "strict"),
    ("Popen", "process_group"), ("run", "process_group"), ("Popen", "user"), ("Popen", "group"),
    ("Popen", "umask"), ("shutdown", "cancel_futures"), ("rmtree", "onexc"), ("rmtree", "dir_fd"),
    ("TemporaryDirectory", "ignore_cleanup_errors"), ("TemporaryDirectory", "delete"),
    ("write_text", "newline"), ("basicConfig", "encoding"), ("glob", "root_dir"),
}  # fmt: skip
BUILT_IN = {"list", "dict", "set", "tuple"}
FUTURE = "from __future__ import annotations"


def list_faults(text: str, name: str) -> list[str]:
    tree = ast.parse(text, name, feature_version=(3, 8))
    compile(text, name, "exec")
    found = []
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Attribute) and node.attr in NEWER_ATTRIBUTES:
            found.append(f"{line}: .{node.attr}")
        elif isinstance(node, ast.Name) and node.id in NEWER_NAMES:
            found.append(f"{line}: {node.id}")
        elif isinstance(node, ast.Import):
            found += [
                f"{line}: import {each.name}"
                for each in node.names
                if each.name.split(".")[0] in NEWER_MODULES
            ]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            newer = NEWER_FROM.get(node.module or "", set())
            found += [
                f"{line}: {node.module}.{each.name}"
                for each in node.names
                if each.name in newer or node.module in NEWER_MODULES
            ]
        elif isinstance(node, ast.Call):
            called = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            found += [
                f"{line}: {called}({each.arg}=)"
                for each in node.keywords
                if (called, each.arg) in NEWER_ARGUMENTS
            ]
    found += list_evaluated(tree)
    if annotates(tree) and FUTURE not in text:
        found.append(f"0: annotations without {FUTURE!r}")
    return found


def list_evaluated(tree: ast.Module) -> list[str]:
    """Types written the new way where they are evaluated: names for types, at the top
    of a module.
    """
    found = []
    for node in tree.body:
        for inner in ast.walk(node.value) if isinstance(node, ast.Assign) else ():
            is_named = (
                isinstance(inner, ast.Subscript)
                and isinstance(inner.value, ast.Name)
                and inner.value.id in BUILT_IN
            )
            is_union = (
                isinstance(inner, ast.BinOp)
                and isinstance(inner.op, ast.BitOr)
                and isinstance(inner.right, ast.Constant)
            )
            if is_named or is_union:
                found.append(f"{node.lineno}: a type that is evaluated")
    return found


def annotates(tree: ast.Module) -> bool:
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return any(node.returns is not None for node in functions) or any(
        isinstance(node, ast.AnnAssign) for node in ast.walk(tree)
    )


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(AGENT).as_posix())
def test_agent_module_uses_only_python_3_8(path: Path) -> None:
    assert list_faults(path.read_text(), path.name) == []


@pytest.mark.parametrize(
    "text",
    [
        "match x:\n    case 1: pass",
        "try: pass\nexcept* OSError: pass",
        "with (open(a) as b, open(c) as d): pass",
        "x = 'ab'.removeprefix('a')",
        "import tomllib",
        "from functools import cache",
        "import subprocess\nsubprocess.Popen([], process_group=0)",
        "Names = list[str]",
        "def f(a: int) -> int | None: ...",
        "class A[T]: pass",
    ],
)
def test_newer_syntax_or_library_use_is_found(text: str) -> None:
    """Red on each kind of thing."""
    try:
        found = list_faults(text, "made-up")
    except SyntaxError as error:
        found = [str(error)]
    assert found
