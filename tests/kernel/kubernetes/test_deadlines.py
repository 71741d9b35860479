"""Deadlines of calls: each operation of a socket is limited to the time that its call has left."""

import os
import socket
import threading
import time

import pytest

from project.kernel.kubernetes.deadline import DeadlineSocket, current_deadline, within
from project.kernel.kubernetes.watch_stream import Handle
from tests.waiting import load

SOON = 30.0
MOST_BYTES = 3000  # that a peer sends in SOON or longer


def connected() -> tuple[DeadlineSocket, socket.socket]:
    ours, theirs = socket.socketpair()
    found = DeadlineSocket(fileno=ours.detach())
    found.settimeout(SOON)
    theirs.settimeout(SOON)
    return found, theirs


def test_many_deadlines_need_no_thread_and_none_ends_before_its_time() -> None:
    before, ends = threading.active_count(), dict[int, float]()

    def receive(number: int) -> None:
        ours, theirs = connected()
        with ours, theirs, within(0.2 + number * 0.002) as deadline:
            with pytest.raises(TimeoutError):
                ours.recv(1)
            ends[number] = time.monotonic() - deadline.until

    every = [threading.Thread(target=receive, args=(number,)) for number in range(100)]
    for thread in every:
        thread.start()
    for thread in every:
        thread.join(SOON * load())
    assert threading.active_count() == before
    assert len(ends) == 100
    assert all(late >= 0 for late in ends.values()), "none before its time"


def test_peer_that_trickles_does_not_extend_the_deadline() -> None:
    ours, theirs = connected()
    stopped = threading.Event()

    def trickle() -> None:
        while not stopped.wait(0.01):
            theirs.sendall(b"x")

    sender = threading.Thread(target=trickle)
    sender.start()
    try:
        with within(0.2) as deadline, pytest.raises(TimeoutError):
            for _ in range(MOST_BYTES):
                ours.recv(1)
        assert deadline.is_over
    finally:
        stopped.set()
        sender.join()
        ours.close()
        theirs.close()


def test_shorter_nested_deadline_ends_in_time() -> None:
    ours, theirs = connected()
    ours.settimeout(1000.0)
    answer = threading.Timer(SOON, theirs.sendall, (b"x",))
    answer.start()
    with within(1000.0):
        with within(0.05) as deadline:
            with pytest.raises(TimeoutError):  # before the answer
                ours.recv(1)
            assert deadline.is_over
    answer.cancel()
    answer.join()
    ours.close()
    theirs.close()


def test_nested_deadline_does_not_extend_the_outer_one() -> None:
    with within(0.05) as outer, within(1000.0) as inner:
        assert inner.left <= outer.left + 0.05


def test_connection_survives_the_deadline_of_an_ended_call() -> None:
    ours, theirs = connected()
    with within(0.05) as short:
        theirs.sendall(b"x")
        assert ours.recv(1) == b"x"
    while not short.is_over:
        time.sleep(0.01)
    sender = threading.Timer(0.1, theirs.sendall, (b"y",))
    sender.start()
    assert ours.recv(1) == b"y"
    sender.join()
    with within(1000.0):
        theirs.sendall(b"z")
        assert ours.recv(1) == b"z"
    ours.close()
    theirs.close()


def test_reused_file_descriptor_is_not_shut() -> None:
    """A socket that was closed gives its number to the next one that is opened anywhere in
    the process.
    """
    ours, theirs = socket.socketpair()
    handle = Handle(ours)
    number = ours.fileno()
    ours.close()
    next_one, its = socket.socketpair()
    while next_one.fileno() != number and its.fileno() != number:
        next_one, its = next_one.dup(), next_one
    handle.shut()
    assert theirs.recv(1) == b""
    its.sendall(b"x")
    its.settimeout(SOON)
    handle.close()
    handle.shut()
    for each in (theirs, next_one, its):
        each.close()


def test_forked_process_has_its_own_deadlines() -> None:
    with within(1000.0):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            said = b"not limited"
            try:
                with within(0.05) as deadline:
                    ours, _ = connected()
                    try:
                        ours.recv(1)
                    except TimeoutError:
                        said = b"limited" if deadline.is_over else b"too early"
            finally:
                os.write(writer, said)
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            assert pipe.read() == b"limited"
        os.waitpid(child, 0)


def test_nested_call_has_its_own_deadline_and_restores_the_outer_one() -> None:
    with within(1000.0) as outer:
        with within(900.0) as inner:
            assert current_deadline() is inner
        assert current_deadline() is outer
    assert current_deadline() is None
