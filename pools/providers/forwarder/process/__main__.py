"""Run a forwarder: python -m pools.providers.forwarder.process --state FOLDER --incarnation N

`--show` prints the state of the forwarder that runs in the folder.
"""

import argparse
import asyncio
import fcntl
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path

from pools.providers.forwarder.process.control import NAME, ControlServer
from pools.providers.forwarder.process.forwarder import Forwarder

LOCK = "running.lock"
ENDED = "ended.json"  # written if the end was asked for
TAKEN = 3  # exit code: a forwarder runs in this folder

logger = logging.getLogger(__name__)


def main() -> int:
    parser = argparse.ArgumentParser(prog="forwarder", description=__doc__)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--incarnation", type=int, default=0)
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    folder: Path = given.state.absolute()
    os.chdir(folder)
    if given.show:
        return show()
    logging.basicConfig(
        stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    # Held until the process ends, however it ends.
    lock = open(os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o600), "r+")  # noqa: SIM115
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        logger.warning("another forwarder runs in %s", folder)
        return TAKEN
    asyncio.run(run(folder, given.incarnation))
    return 0


async def run(folder: Path, incarnation: int) -> None:
    """Serve until SIGTERM, or until the folder is gone."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    forwarder = Forwarder(folder, incarnation)
    await forwarder.load()
    server = await ControlServer(forwarder).start()
    logger.info("incarnation %s serves, process %s", incarnation, os.getpid())
    watching = loop.create_task(forwarder.watch())
    asking = loop.create_task(asked.wait())
    await asyncio.wait((watching, asking), return_when=asyncio.FIRST_COMPLETED)
    if asked.is_set():
        record_end()
    elif (error := watching.exception()) is not None:
        raise error
    logger.info("ends: %s", "it was asked to" if asked.is_set() else "its folder is gone")
    server.close()
    watching.cancel()
    asking.cancel()
    forwarder.end()


def record_end() -> None:
    Path(ENDED).write_text(json.dumps({"why": "asked", "pid": os.getpid()}))


def show() -> int:
    with socket.socket(socket.AF_UNIX) as control:
        control.settimeout(10)
        try:
            control.connect(NAME)
        except OSError as error:
            sys.stderr.write(f"No forwarder answers here: {error}\n")
            return 1
        control.sendall(b'{"do": "describe"}\n')
        with control.makefile("rb") as answer:
            sys.stdout.write(f"{json.dumps(json.loads(answer.readline()), indent=2)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
