"""Writes the state diagrams into docs/states.md:   python -m tests.database.diagrams"""

import re
from pathlib import Path

from claims.states import CLAIM, CLAIM_SET
from pools.states import MEMBER, POOL
from project.kernel.db.state_machine import StateMachine
from slots.states import SLOT

PAGE = Path(__file__).resolve().parents[2] / "docs" / "states.md"
BLOCK = re.compile(
    r"(?<=<!-- diagrams, written by tests/database/diagrams.py -->\n"
    r").*?(?=<!-- end of diagrams -->)",
    re.S,
)


def draw() -> str:
    found = []
    for machine in (POOL, MEMBER, SLOT, CLAIM, CLAIM_SET):
        meanings = "\n".join(f"- `{state}`: {meaning}" for state, meaning in machine.states.items())
        found.append(
            f"### {machine.name.replace('_', ' ').capitalize()}\n\n"
            f"{meanings}\n\n```mermaid\n{diagram_of(machine)}\n"
            "```\n"
        )
    return "\n" + "\n".join(found) + "\n"


def diagram_of(machine: StateMachine) -> str:
    """Mermaid."""
    lines = [
        "stateDiagram-v2",
        f"    [*] --> {machine.initial}",
        *(f"    [*] --> {s}" for s in machine.insert_states),
    ]
    lines += [
        f"    {e.source} --> {e.target}: {e.by}" + (f" ({e.when})" if e.when else "")
        for e in machine.edges
    ]
    terminal = machine.states.keys() - {e.source for e in machine.edges}
    return "\n".join([*lines, *(f"    {s} --> [*]" for s in sorted(terminal))])


def written() -> str:
    found = BLOCK.search(PAGE.read_text())
    return found[0] if found else ""


if __name__ == "__main__":
    PAGE.write_text(BLOCK.sub(lambda _: draw(), PAGE.read_text()))
