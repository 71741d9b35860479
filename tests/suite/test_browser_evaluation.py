"""Browser tests never evaluate strings: the content policy of the pages has no 'unsafe-eval', and
Chromium enforces it.

`wait_for_function("expression")` is evaluated by the page itself whenever the first look finds it
false, so the policy refuses it on a slow machine and lets it pass on a fast one. `add_script_tag`
is refused always. A function that the DevTools protocol compiles and calls at once
(`page.evaluate("() => ...")`) needs no permission of the policy. An expression is refused as well:
it reads the page once, where a locator or `expect` waits.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
REFUSED = {"wait_for_function", "add_script_tag", "eval_on_selector", "eval_on_selector_all"}
CALLED_AT_ONCE = {"evaluate", "evaluate_all", "evaluate_handle"}
FUNCTION = re.compile(r"\s*(async\s+)?(\([\w\s,{}\[\]]*\)|\w+)\s*=>|\s*(async\s+)?function\b")
WITHIN = re.compile(r"\beval\s*\(|\bnew\s+Function\b|\bset(Timeout|Interval)\s*\(\s*[\"'`]")


def find_string_evaluations(source: str) -> Iterator[tuple[int, str]]:
    """The line and the fault of each call that needs a string to be evaluated in the page."""
    if not any(name in source for name in REFUSED | CALLED_AT_ONCE):
        return  # most modules: to parse all of them takes ten times as long
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = node.func.attr
        if name in REFUSED:
            yield node.lineno, f"{name} is refused by the content policy: use a locator or expect"
        elif name in CALLED_AT_ONCE:
            given = (
                node.args[0]
                if node.args
                else next((k.value for k in node.keywords if k.arg == "expression"), None)
            )
            if (
                not isinstance(given, ast.Constant)
                or not isinstance(given.value, str)
                or not FUNCTION.match(given.value)
            ):
                yield (
                    node.lineno,
                    (
                        f"{name} needs a function written out at the call; for a value use a "
                        "locator or expect"
                    ),
                )
            elif WITHIN.search(given.value):
                yield node.lineno, f"the function given to {name} evaluates a string itself"


def test_browser_tests_evaluate_no_strings() -> None:
    found = [
        f"{path.relative_to(TESTS.parent)}:{line}: {fault}"
        for path in sorted(TESTS.rglob("*.py"))
        for line, fault in find_string_evaluations(path.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "call",
    [
        'page.wait_for_function("document.hidden")',
        'page.wait_for_function("() => true")',
        'page.evaluate("document.title")',
        'page.evaluate(expression="document.title")',
        "page.evaluate(script)",
        'page.evaluate(f"() => {name}")',
        'page.locator("p").evaluate_all("items.length")',
        'page.evaluate("() => eval(name)")',
        'page.evaluate("() => setTimeout(`go()`, 5)")',
        'page.add_script_tag(content="1")',
        'page.eval_on_selector("p", "e => e.id")',
    ],
)
def test_string_evaluation_is_found(call: str) -> None:
    assert [line for line, _ in find_string_evaluations(f"def test(page):\n    {call}\n")] == [2]


@pytest.mark.parametrize(
    "call",
    [
        'page.evaluate("() => berth.log.lines")',
        'page.evaluate("async () => { await 1; }")',
        'page.locator("canvas").evaluate("canvas => canvas.clientWidth")',
        'page.evaluate("(lists) => lists.length", lists)',
        'expect(page.locator("html")).to_have_js_property("scrollWidth", 390)',
    ],
)
def test_functions_and_locators_are_allowed(call: str) -> None:
    assert not list(find_string_evaluations(f"def test(page):\n    {call}\n"))
