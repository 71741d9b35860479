"""Sockets of a listener: all addresses and all ports, or none."""

import errno
import resource
import socket
import struct
from collections.abc import Sequence

BACKLOG = 511
RESERVED_FILES = 64  # of the process itself: log, control socket, event loop, libraries
RECEIVE_BUFFER = 1 << 20  # bytes; the kernel lowers it to its limit
KEEPALIVE = (60, 15, 4)  # idle seconds, seconds between probes, probes
RESET = struct.pack("ii", 1, 0)  # linger for no time: the close sends RST


class BindFault(Exception):
    """The ports cannot be opened."""

    def __init__(self, text: str, *, is_taken: bool = False) -> None:
        super().__init__(text)
        self.is_taken = is_taken  # another program uses a port


def raise_file_limit() -> int:
    """Raise the limit of open files as far as an ordinary user may; the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def open_sockets(
    lane: str, addresses: Sequence[str], first: int, count: int
) -> list[tuple[socket.socket, int]]:
    """The sockets with the offset of their port in the segment. Raises BindFault."""
    made: list[tuple[socket.socket, int]] = []
    for address in addresses:
        for offset in range(count):
            try:
                made.append((_open(lane, address, first + offset), offset))
            except OSError as error:
                for each, _ in made:
                    each.close()
                raise _explain(error, lane, address, first + offset) from None
    return made


def _open(lane: str, address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    kind = socket.SOCK_STREAM if lane == "tcp" else socket.SOCK_DGRAM
    made = socket.socket(family, kind)
    try:
        made.setblocking(False)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if lane == "tcp":
            # Connections of the process before may still be closing; they do not hold the port.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        else:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        made.bind((address, port))
        if lane == "tcp":
            made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _explain(error: OSError, lane: str, address: str, port: int) -> BindFault:
    shown = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    match error.errno:
        case errno.EADDRINUSE:
            return BindFault(f"Another program uses {lane} {shown}.", is_taken=True)
        case errno.EACCES | errno.EPERM:
            return BindFault(
                f"The forwarder may not open {lane} {shown}: ports below 1024 need privileges."
            )
        case errno.EADDRNOTAVAIL | errno.EAFNOSUPPORT:
            return BindFault(f"{address} is not an address of this machine.")
        case errno.EMFILE | errno.ENFILE:
            return BindFault(
                f"No file is left for {lane} {shown}: raise the limit of open files of Berth."
            )
    return BindFault(f"{lane} {shown} cannot be opened: {error.strerror}.")


def reset(client: socket.socket) -> None:
    """Close with RST, so that the client does not wait."""
    try:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    except OSError:
        pass
    finally:
        client.close()


def keep_alive(made: socket.socket) -> None:
    """Let the kernel find peers that vanished."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in zip(
        ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"), KEEPALIVE, strict=True
    ):
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
