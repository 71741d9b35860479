"""Listeners that differ from what their claims want of them: another target, protocol or
certificate. Pure.

Only a look judges this: a sync makes both equal. A look that began before an order of the claim was
carried out must not call the difference a change from outside.
"""

from collections.abc import Mapping

from pools.providers.base import PortUse

WORDS = {"protocol": "protocol", "target": "target", "certificate": "certificate"}


def describe_change(use: PortUse, seen: Mapping[str, object]) -> str:
    """How the listener differs, for people; empty: it does not. An attribute that the provider does
    not report has not changed, other than a target that is gone. The target of a claim without a
    backend is not judged: a former backend leaves slowly. A withheld target is judged until the
    provider removes it.
    """
    if seen.get("problem"):
        return ""  # the claim cannot have what it wants
    found = [
        f"{word} {_show(seen.get(name))} in place of {_show(wanted)}"
        for name, word in WORDS.items()
        if (wanted := _wanted(use, name)) != _seen(seen, name, wanted, use)
    ]
    return ", ".join(found)


def _wanted(use: PortUse, name: str) -> str:
    match name:
        case "protocol":
            return use.protocol
        case "certificate":
            return use.certificate
        case _:
            return "" if use.target is None else str(use.target)


def _seen(seen: Mapping[str, object], name: str, wanted: str, use: PortUse) -> str:
    is_unknown = name not in seen
    if name == "target":
        is_judged = bool(wanted) or (use.is_withheld and seen.get("health") != "draining")
        is_unknown = bool(seen.get("unread")) or not is_judged
    return wanted if is_unknown else str(seen.get(name) or "")


def _show(value: object) -> str:
    return str(value) if value else "none"
