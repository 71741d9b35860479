"""Keeps a page about a harbour in line with harbour.json. `plan` says what would change, `apply`
changes it. Needs Python 3.8 and nothing else.

The page, what it was made from and a line for each apply lie in $HELLO_TARGET/<workspace>/ (without
it: /tmp/berth-hello).
A command for Berth tells what it found in files that Berth names: the saved plan in
BERTH_PLAN_FILE, the plan for people in BERTH_PLAN_JSON, in the format of `terraform show -json`.
Run by hand it prints only.
"""

import fcntl
import hashlib
import html
import json
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = Path(os.environ.get("HELLO_TARGET") or "/tmp/berth-hello")
PLACE = TARGET / (os.environ.get("BERTH_WORKSPACE") or "by-hand").replace("/", "-")
# Seconds for each step: work that can be watched.
PACE = float(os.environ.get("HELLO_PACE") or "0.1")
CHANGES = 2  # exit code of a plan that has something to apply, as Terraform has it
GREEN, YELLOW, RED, BOLD, OFF = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[1m", "\x1b[0m"
SIGNS = {"create": f"{GREEN}+{OFF}", "update": f"{YELLOW}~{OFF}", "delete": f"{RED}-{OFF}"}


def read_wanted():
    """Ships by their berth, and the page itself: everything that is kept, by its address."""
    wanted = json.loads((HERE / "harbour.json").read_text())
    found = {f"ship.{name}": ship for name, ship in wanted["ships"].items()}
    return {"page.index": {"title": wanted["title"]}, **found}


def read_present():
    try:
        return json.loads((PLACE / "state.json").read_text())
    except FileNotFoundError:
        return {}


def digest(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def list_changes(present, wanted):
    found = []
    for address in sorted({*present, *wanted}):
        before, after = present.get(address), wanted.get(address)
        if before != after:
            found.append(
                {
                    "address": address,
                    "action": "create"
                    if before is None
                    else "delete"
                    if after is None
                    else "update",
                    "before": before,
                    "after": after,
                }
            )
    return found


def plan():
    present, wanted = read_present(), read_wanted()
    changes = list_changes(present, wanted)
    say(f"{BOLD}{PLACE.name}{OFF}: {len(wanted)} wanted, {len(present)} there")
    for address in sorted(present):
        say(f"{address}: reading")
        time.sleep(PACE)
    for change in changes:
        say(f"  {SIGNS[change['action']]} {change['address']}")
        before, after = change["before"] or {}, change["after"] or {}
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name):
                said = (
                    f"{before[name]!r} -> {after[name]!r}"
                    if name in before and name in after
                    else repr(after.get(name, before.get(name)))
                )
                say(f"      {name} = {said}")
    counts = {action: sum(change["action"] == action for change in changes) for action in SIGNS}
    say(
        (
            f"Plan: {counts['create']} to add, {counts['update']} to change, "
            f"{counts['delete']} to destroy."
        )
        if changes
        else "No changes."
    )
    write_for_berth("BERTH_PLAN_FILE", {"saw": digest(present), "wanted": wanted})
    write_for_berth("BERTH_PLAN_JSON", as_terraform(changes))
    if not changes and "BERTH_NO_CHANGES" in os.environ:
        Path(os.environ["BERTH_NO_CHANGES"]).touch()
    return CHANGES if changes else 0


def as_terraform(changes):
    def shown(change):
        kind, _, name = change["address"].partition(".")
        about = {
            "actions": [change["action"]],
            "before": change["before"],
            "after": change["after"],
            "after_unknown": {},
            "before_sensitive": {},
            "after_sensitive": {},
        }
        return {
            "address": change["address"],
            "mode": "managed",
            "type": kind,
            "name": name,
            "provider_name": "hello",
            "change": about,
        }

    return {
        "format_version": "1.2",
        "terraform_version": "hello",
        "resource_changes": [shown(change) for change in changes],
    }


def write_for_berth(name, value):
    if name in os.environ:
        Path(os.environ[name]).write_text(json.dumps(value))


def apply():
    """What was planned and nothing else; and only if all is still as the plan saw it."""
    saved = os.environ.get("BERTH_PLAN_FILE")
    made = (
        json.loads(Path(saved).read_text())
        if saved
        else {"saw": digest(read_present()), "wanted": read_wanted()}
    )
    make_place()
    with alone():
        present = read_present()
        if digest(present) != made["saw"]:
            say(f"{RED}Something has changed since the plan was made. Plan again.{OFF}")
            return 1
        # First of all, so that it stands there also for an apply that did not come to its end.
        append(
            "applied.log",
            (
                f"{os.environ.get('BERTH_CLAIM', '-')} {os.environ.get('BERTH_GENERATION', '-')} "
                f"{int(time.time())}\n"
            ),
        )
        done = dict(present)
        for change in list_changes(present, made["wanted"]):
            say(f"  {SIGNS[change['action']]} {change['address']}")
            time.sleep(PACE)
            if change["after"] is None:
                del done[change["address"]]
            else:
                done[change["address"]] = change["after"]
        replace("state.json", json.dumps(done, indent=1, sort_keys=True))
        replace("index.html", as_page(done))
    say(f"{GREEN}Done.{OFF} Look at {PLACE / 'index.html'}")
    return 0


def as_page(done):
    title = html.escape(done.get("page.index", {}).get("title", "A harbour"))
    ships = sorted(
        (address.partition(".")[2], ship)
        for address, ship in done.items()
        if address.startswith("ship.")
    )
    rows = "".join(
        (
            f"<tr><td>{html.escape(name)}</td><td>{html.escape(str(ship.get('berth', '')))}"
            f"</td><td>{html.escape(str(ship.get('cargo', '')))}</td></tr>"
        )
        for name, ship in ships
    )
    table = f"<table><tr><th>Ship</th><th>Berth</th><th>Cargo</th></tr>{rows}</table>"
    return (
        "<!doctype html><meta "
        f"charset=utf-8><title>{title}</title><h1>{title}</h1>{table}<p>Applied "
        f"{time.strftime('%Y-%m-%d %H:%M:%S')}</p>\n"
    )


# Each task may run as a user of its own, so that what one makes the next has to be able to change.


def make_place():
    if not PLACE.is_dir():
        PLACE.mkdir(parents=True, exist_ok=True)
        PLACE.chmod(TARGET.stat().st_mode & 0o777)


def replace(name, text):
    scratch = PLACE / f".{name}.{os.getpid()}"
    scratch.write_text(text)
    scratch.chmod(0o644)
    scratch.replace(PLACE / name)


def append(name, line):
    old = (PLACE / name).read_text() if (PLACE / name).exists() else ""
    replace(name, old + line)


@contextmanager
def alone():
    """One at a time, also where nobody else sees to it."""
    handle = os.open(PLACE, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def say(text):
    print(text, flush=True)


if __name__ == "__main__":
    if sys.argv[1:] not in (["plan"], ["apply"]):
        sys.exit("python3 hello.py plan | apply")
    sys.exit({"plan": plan, "apply": apply}[sys.argv[1]]())
