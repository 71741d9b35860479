"""The binary header of PROXY protocol, version 2, with which a target learns the address of a
client. Pure.
"""

import ipaddress

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
LOCAL = SIGNATURE + bytes([0x20, 0x00, 0x00, 0x00])  # of a connection of the forwarder itself
PROXY = 0x21  # version 2, command PROXY
TCP4, TCP6 = 0x11, 0x21


def write_header(client: tuple[str, int], listener: tuple[str, int]) -> bytes:
    """Both addresses are of one family, because a client calls the listener of its family."""
    source, destination = (ipaddress.ip_address(ip).packed for ip in (client[0], listener[0]))
    ports = client[1].to_bytes(2, "big") + listener[1].to_bytes(2, "big")
    body = source + destination + ports
    family = TCP4 if len(source) == 4 else TCP6
    return SIGNATURE + bytes([PROXY, family]) + len(body).to_bytes(2, "big") + body
