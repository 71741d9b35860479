"""Ports of this machine that programs use, from the tables of the kernel. On other systems
than Linux, they show only when a forwarder tries to open them.
"""

import ipaddress
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

NET = Path("/proc/self/net")
LISTENS = "0A"  # state of a TCP socket
UNCONNECTED = "07"  # state of a UDP socket that takes datagrams of every sender
TABLES = (("tcp", "tcp", LISTENS), ("tcp", "tcp6", LISTENS),
          ("udp", "udp", UNCONNECTED), ("udp", "udp6", UNCONNECTED))  # fmt: skip


def list_busy(bind: Collection[str]) -> dict[tuple[str, int], str]:
    """Lane and port with the address, of all sockets on these addresses, the own ones included."""
    found = {}
    for lane, table, state in TABLES:
        with suppress(FileNotFoundError):  # a kernel without IPv6
            for address, port in read_table((NET / table).read_text(), state):
                same = [each for each in bind if (":" in each) is (":" in address)]
                if address in same or (same and ipaddress.ip_address(address).is_unspecified):
                    shown = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
                    found[lane, port] = shown
    return found


def read_table(text: str, state: str) -> Iterator[tuple[str, int]]:
    """Local address and port of the sockets in this state."""
    for line in text.splitlines()[1:]:
        if f" {state} " not in line:  # most lines are connections
            continue
        fields = line.split()
        if len(fields) > 3 and fields[3] == state:
            address, _, port = fields[1].rpartition(":")
            yield read_address(address), int(port, 16)


def read_address(text: str) -> str:
    """The kernel writes words of 32 bits in the order of the machine."""
    words = [bytes.fromhex(text[i : i + 8]) for i in range(0, len(text), 8)]
    if sys.byteorder == "little":
        words = [word[::-1] for word in words]
    return str(ipaddress.ip_address(b"".join(words)))
