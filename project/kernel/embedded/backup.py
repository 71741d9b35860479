"""Dumps of the embedded database, and back.

python -m project.kernel.embedded.backup dump [FILE]     while Berth runs
python -m project.kernel.embedded.backup restore FILE    while Berth is stopped; what was there moves aside
"""

import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from project.kernel.embedded.home import Home
from project.kernel.embedded.postgres import EmbeddedPostgres, tool
from project.kernel.embedded.process import Trouble
from project.settings import environment as env

KEPT = 10


def dump(url: str, folder: Path, label: str = "") -> Path:
    """A dump as pg_restore reads it. It appears under its name only when it is whole."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}{'-' if label else ''}{label}.dump"
    run_tool("pg_dump", url, ["--format=custom", "--no-owner", f"--file={file}.part"])
    file.with_name(f"{file.name}.part").rename(file)
    return file


def keep_newest(folder: Path) -> None:
    for old in sorted(folder.glob("*.dump"))[:-KEPT]:
        old.unlink()


def restore(url: str, file: Path) -> None:
    """Into an empty database. All or nothing."""
    run_tool("pg_restore", url, ["--no-owner", "--single-transaction", "--exit-on-error", str(file)])


def run_tool(name: str, url: str, arguments: list[str]) -> None:
    """The URL holds a password, so it goes in by the environment, never by argv."""
    environment = {"PATH": "/usr/bin:/bin", **env.libpq(url)}
    options = [] if name == "pg_dump" else ["--dbname", environment["PGDATABASE"]]
    done = subprocess.run([tool(name), *options, *arguments], env=environment, capture_output=True, text=True, umask=0o077)
    if done.returncode:
        raise Trouble(f"{name} did not succeed: {done.stderr.strip()[-1500:]}")


def restore_state(home: Home, file: Path) -> Path | None:
    """Puts a dump in the place of the present data, which moves aside."""
    if not file.is_file():
        raise Trouble(f"There is no file {file}.")
    home.open()
    before = home.path / "postgres" / "data"
    aside = before.with_name(f"data-{time.strftime('%Y%m%dT%H%M%S')}") if before.exists() else None
    if aside:
        before.rename(aside)
    postgres = EmbeddedPostgres(home.path / "postgres").start()
    try:
        postgres.create_database()
        restore(postgres.url(), file)
    except BaseException:  # also Ctrl-C: the state is as it was before
        postgres.stop()
        if aside:
            shutil.rmtree(before)
            aside.rename(before)
        raise
    postgres.stop()
    return aside


def main() -> None:
    try:
        match sys.argv[1:]:
            case ["dump", *more]:
                url = env.database_url()
                if not url:
                    raise Trouble("Berth does not run here. Start it with `make up`, then dump.")
                made = dump(url, Path(more[0]).absolute().parent if more else env.home() / "backups")
                print(made.rename(Path(more[0]).absolute()) if more else made)
            case ["restore", file]:
                aside = restore_state(Home(env.home()), Path(file).absolute())
                print(f"Restored.{f' The data from before lies in {aside}.' if aside else ''} Start Berth with `make up`.")
            case _:
                raise Trouble(str(__doc__).strip())
    except Trouble as trouble:
        sys.exit(f"{trouble}")


if __name__ == "__main__":
    main()
