"""The state folder: its owner, lock, free space and files.

BERTH_HOME/            0700
  lock                 held while Berth runs here; contains its address
  services.json        0600, URLs of the embedded services, for other commands
  secret-key           0600
  admin-password       0600, password of the first user, until its owner removes the file; absent
                       with BERTH_ADMIN_PASSWORD
  postgres/ valkey/    data, logs and passwords
  backups/             dumps, one before each migration
  agents/              a folder for each agent of the local provider: token, log, work in
                       progress
  forwarders/          a folder for each forwarder: log, plan, control socket
"""

import errno
import fcntl
import json
import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from project.kernel.embedded.process import StartupError
from project.kernel.security.private_files import write_private

ENOUGH = 300_000_000  # bytes: a fresh database, its write-ahead log, and room to recover


@dataclass
class Home:
    path: Path
    lock: IO[str] | None = None

    def open(self) -> None:
        """Creates or checks the folder and takes its lock. Fails if another `up` uses it."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            owner = self.path.stat().st_uid
            if owner != os.geteuid():
                raise StartupError(
                    f"{self.path} belongs to another user (uid {owner}). Start as that user, or "
                    "name another folder in BERTH_HOME."
                )
            self.path.chmod(0o700)
            self.lock = os.fdopen(os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600), "r+")
        except FileExistsError:
            raise StartupError(
                f"{self.path} is a file, not a folder. Move it away, or name another folder "
                "in BERTH_HOME."
            ) from None
        except OSError as error:
            raise StartupError(
                f"{self.path} cannot be used: {error.strerror}. Name another folder in BERTH_HOME."
            ) from None
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StartupError(self._describe_owner()) from None
        self.lock.truncate()  # the address of the last `up`
        self.check_space()

    def write_address(self, url: str) -> None:
        """Writes the address into the lock, for the error of another `up` on this folder."""
        assert self.lock is not None
        self.lock.seek(0)
        self.lock.truncate()
        json.dump({"url": url, "pid": os.getpid()}, self.lock)
        self.lock.flush()

    def _describe_owner(self) -> str:
        assert self.lock is not None
        try:
            owner: dict[str, object] = json.loads(self.lock.read())
            where = f"{owner['url']} (process {owner['pid']})"
        except (ValueError, KeyError):
            where = "it is just starting"
        return (
            f"Berth already runs on {self.path}: {where}. It is left alone. For a second one, set "
            "BERTH_HOME and BERTH_PORT."
        )

    def check_space(self) -> None:
        free = self.count_free()
        if free < ENOUGH:
            raise StartupError(
                f"The disk of {self.path} is full: {free // 10**6} MB are free, Berth needs "
                f"{ENOUGH // 10**6} MB. Make room, or name a folder elsewhere in BERTH_HOME."
            )

    def count_free(self) -> int:
        return shutil.disk_usage(self.path).free

    def is_full(self) -> bool:
        return self.count_free() < 20_000_000

    def write_services(self, urls: dict[str, str]) -> None:
        write_private(self.path / "services.json", json.dumps(urls))

    def forget_services(self) -> None:
        (self.path / "services.json").unlink(missing_ok=True)


def bind(address: str, port: str) -> socket.socket:
    """The listening socket of the web process. The supervisor keeps it open, so connections wait
    while the web process restarts.
    """
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise StartupError(f"BERTH_PORT is {port!r}, not a port number.")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, int(port)))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise StartupError(
                f"Port {port} on {address} is in use by another program. Choose another: "
                f"BERTH_PORT={int(port) % 65535 + 1} make up"
            ) from None
        if error.errno == errno.EACCES:
            raise StartupError(
                f"Port {port} is reserved for root. Choose another: BERTH_PORT=8000 make up"
            ) from None
        raise StartupError(
            f"BERTH_BIND={address} is no address of this machine ({error.strerror})."
        ) from None
    return listener
