"""Deadlines of calls: one thread per process rings all clocks, and none rings after its call has
ended.
"""

import os
import random
import socket
import threading
import time

from project.kernel.kubernetes import deadline
from project.kernel.kubernetes.deadline import SPARE, Deadline, DeadlineWatcher, Handle, within
from tests.end_to_end.stack import load

SOON = 30.0


def pair_held_by(clock: Deadline) -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.settimeout(SOON)
    theirs.settimeout(SOON)
    clock.hold(ours)
    return ours, theirs


def clock_threads() -> int:
    return sum(thread.name == "clocks" for thread in threading.enumerate())


def test_many_clocks_ring_on_one_thread_none_before_its_time() -> None:
    ringer, order = DeadlineWatcher(), list[int]()
    before = clock_threads()
    rung = threading.Event()

    class Telling(Deadline):
        def __init__(self, number: int) -> None:
            super().__init__(number * 0.002)
            self.number = number

        def ring(self) -> None:
            super().ring()
            order.append(self.number)
            if len(order) == 100:
                rung.set()

    begun = time.monotonic()
    every = [Telling(number) for number in range(100)]
    for clock in every:
        clock.until = begun + 0.2 + clock.number * 0.002
    for clock in random.Random(7).sample(every, 100):
        ringer.set(clock)
    assert clock_threads() == before + 1
    assert rung.wait(SOON)
    assert time.monotonic() - begun >= 0.2 + 99 * 0.002, "none before its time"
    assert order == sorted(order)
    assert all(clock.is_over for clock in every)


def test_shorter_deadline_set_later_rings_in_time() -> None:
    with within(1000.0):
        begun = time.monotonic()
        with within(0.05) as clock:
            ours, theirs = pair_held_by(clock)
            assert ours.recv(1) == b"", "it was shut"
            assert clock.is_over
        assert time.monotonic() - begun < 5.0 * load()
        ours.close()
        theirs.close()


def test_ended_call_is_not_rung_and_its_connection_survives() -> None:
    with within(0.05) as short:
        ours, theirs = pair_held_by(short)
    with within(0.2) as later:
        other, its = pair_held_by(later)
        assert other.recv(1) == b"", "the time of both is over"
    theirs.sendall(b"x")
    assert (ours.recv(1), short.is_over) == (b"x", False)
    for each in (ours, theirs, other, its):
        each.close()


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


def test_ended_clocks_do_not_accumulate() -> None:
    ringer, most = DeadlineWatcher(), 0
    with_long = [Deadline(1000.0) for _ in range(3)]
    for clock in with_long:
        ringer.set(clock)
    for _ in range(20 * SPARE):
        clock = Deadline(1000.0)
        ringer.set(clock)
        clock.end()
        ringer.drop(clock)
        most = max(most, len(ringer))
    assert len(with_long) <= len(ringer) <= most <= 2 * SPARE
    assert not any(clock.is_done for clock in with_long)


def test_forked_process_has_its_own_clocks() -> None:
    with within(1000.0):  # the thread of the parent runs, and is not there in the child
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            said = b"nobody rang"
            try:
                with within(0.05) as clock:
                    ours, _ = pair_held_by(clock)
                    said = b"rung" if ours.recv(1) == b"" and clock.is_over else b"not rung"
            finally:
                os.write(writer, said)
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            assert pipe.read() == b"rung"
        os.waitpid(child, 0)


def test_nested_call_has_its_own_clock_and_restores_the_outer_one() -> None:
    with within(1000.0) as outer:
        with within(900.0) as inner:
            assert deadline.current_deadline() is inner
        assert deadline.current_deadline() is outer
    assert deadline.current_deadline() is None
