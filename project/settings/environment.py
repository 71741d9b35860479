"""Settings from the environment and the state folder. Standard library only, because `up` runs
without Django.
"""

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from project.kernel.security.private_files import read_secret

ROOT = Path(__file__).resolve().parents[2]
FIRST_PROVIDERS = ("static", "local", "agents")  # in the form of a new pool
HOT = {
    "lock_timeout": "2s",
    "statement_timeout": "5s",
    "idle_in_transaction_session_timeout": "10s",
    "enable_seqscan": "off",
    "plan_cache_mode": "force_generic_plan",
}
PATIENT = {
    "lock_timeout": "5s",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}


def home() -> Path:
    """The state folder."""
    return Path(os.environ.get("BERTH_HOME") or ROOT / ".berth").absolute()


def files() -> Path:
    """The folder of sealed files: plans and sources."""
    return Path(os.environ.get("BERTH_FILES") or home() / "files").absolute()


def work() -> Path:
    """The folder for working folders of agents and of the sample, where Berth runs as root: other
    users cannot enter a private home. Users of a folder check its owner.
    """
    return Path(os.environ.get("BERTH_WORK") or "/var/tmp").absolute()  # noqa: S108


def is_on(name: str, default: bool = False) -> bool:
    return os.environ.get(name, "1" if default else "0").strip().lower() in {
        "1",
        "true",
        "yes",
        "on",
    }


def list_words(name: str, default: str = "") -> list[str]:
    return [word.strip() for word in os.environ.get(name, default).split(",") if word.strip()]


def list_providers(folder: Path = ROOT / "pools" / "providers") -> list[str]:
    """Dotted names of the provider classes below a folder: package `<kind>` has a module `provider`
    with a class `<Kind>Provider`.
    """
    found = sorted(path.parent.name for path in folder.glob("*/provider.py"))
    kinds = [kind for kind in FIRST_PROVIDERS if kind in found]
    kinds += [kind for kind in found if kind not in FIRST_PROVIDERS]
    return [
        f"pools.providers.{kind}.provider.{kind.title().replace('_', '')}Provider" for kind in kinds
    ]


def running() -> dict[str, str]:
    """The URLs of the embedded services of this state folder. `up` writes them for other commands,
    into a file that only its owner may read.
    """
    try:
        found: dict[str, str] = json.loads((home() / "services.json").read_text())
    except (OSError, ValueError):
        return {}
    return found


def database_url() -> str:
    return os.environ.get("DATABASE_URL") or running().get("DATABASE_URL", "")


def redis_url() -> str:
    return os.environ.get("REDIS_URL") or running().get("REDIS_URL", "")


def secret(name: str) -> str:
    """A random secret of this installation, stored in the state folder for its owner only."""
    return read_secret(home() / name, 48)


def libpq(url: str) -> dict[str, str]:
    """The environment for PostgreSQL's programs, so that no password is in their arguments."""
    at = urlsplit(url)
    found = {
        "PGHOST": at.hostname,
        "PGPORT": str(at.port or ""),
        "PGUSER": at.username,
        "PGPASSWORD": at.password,
    }
    found["PGDATABASE"] = at.path.lstrip("/")
    return {name: unquote(value) for name, value in found.items() if value}


def database(url: str, *, is_patient: bool = False) -> dict[str, Any]:
    """Django's settings for a PostgreSQL URL. The guards are options of the connection, so that
    they apply to every code path.
    """
    # Commands without a database import the settings, too; no server listens on port 1.
    at = urlsplit(url or "postgresql://127.0.0.1:1/berth")
    guards = PATIENT if is_patient else HOT
    query = dict(parse_qsl(at.query))
    options = " ".join(
        [query.pop("options", ""), *(f"-c {name}={value}" for name, value in guards.items())]
    ).strip()
    return {
        "ENGINE": "project.kernel.db.postgres",
        "NAME": unquote(at.path.lstrip("/")),
        "USER": unquote(at.username or ""),
        "PASSWORD": unquote(at.password or ""),
        "HOST": unquote(at.hostname or query.pop("host", "")),
        "PORT": str(at.port or ""),
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": True,
        # With Django's default of None, psycopg would not prepare even statements that ask for
        # it. A high number prepares only those.
        "OPTIONS": {
            "application_name": "berth",
            "connect_timeout": 5,
            **KEEPALIVE,
            "prepare_threshold": 1_000_000,
            **query,
            "options": options,
        },
    }
