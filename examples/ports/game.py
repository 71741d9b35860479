"""A small game server, and a player: python3 game.py serve ROOM PORT, python3 game.py play HOST PORT
"""

import socket
import sys
import threading


def serve(room, port, host="127.0.0.1"):
    """Greet every player, over TCP and over UDP."""
    doors = socket.create_server((host, port))
    shouts = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    shouts.bind((host, port))
    threading.Thread(target=hear, args=(room, shouts), daemon=True).start()
    sys.stdout.write(f"{room} is open on port {port}\n")
    sys.stdout.flush()
    while True:
        player, _ = doors.accept()
        threading.Thread(target=greet, args=(room, player), daemon=True).start()


def greet(room, player):
    with player:
        name = player.makefile().readline().strip()
        player.sendall(f"welcome to {room}, {name}\n".encode())


def hear(room, shouts):
    while True:
        text, player = shouts.recvfrom(2000)
        shouts.sendto(f"{room} heard {text.decode(errors='replace')}".encode(), player)


def play(host, port, name="ada"):
    """Enter by TCP and shout by UDP; the two answers."""
    with socket.create_connection((host, port), 10) as door:
        door.sendall(f"{name}\n".encode())
        welcome = door.makefile().readline().strip()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as voice:
        voice.settimeout(10)
        voice.connect((host, port))
        voice.send(b"ahoy")
        return welcome, voice.recv(2000).decode()


if __name__ == "__main__":
    verb, first, port = sys.argv[1:4]
    if verb == "serve":
        serve(first, int(port))
    else:
        sys.stdout.write("\n".join(play(first, int(port))) + "\n")
