"""Accessibility by axe, in both themes and without a reload."""

from typing import Any

from axe_playwright_python.base import AXE_SCRIPT

STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
COLOURS = ["color-contrast", "link-in-text-block"]  # the rules that know colours
# Without preloading: only an experimental rule, which is off, reads style sheets.
OPTIONS = {"resultTypes": ["violations"], "preload": False}


def load_axe(page: Any) -> None:
    """Once for a document. The DevTools protocol runs the script outside of the content policy."""
    if not page.evaluate("() => 'axe' in window"):
        session = page.context.new_cdp_session(page)
        session.send("Runtime.evaluate", {"expression": AXE_SCRIPT})
        session.detach()


def find_faults(page: Any, within: str = "html") -> list[str]:
    """Faults of the part in both themes. They are the same page in other colours, so what knows no
    colour is checked once.
    """
    load_axe(page)
    found = []
    for theme, rules in (
        ("dark", {"type": "rule", "values": COLOURS}),
        ("light", {"type": "tag", "values": STANDARDS}),
    ):
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        for rule, html, why in page.evaluate(
            """([within, options]) => axe.run(within, options).then((found) =>
                found.violations.map(({id, nodes: [node]}) => [id, node.html, node.failureSummary]))
            """,
            [within, {"runOnly": rules, **OPTIONS}],
        ):
            found.append(f"{page.url} {theme}: {rule}: {html[:200]} {(why or '')[:200]}")
    return found
