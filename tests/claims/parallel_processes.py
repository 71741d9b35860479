"""Real processes that act at the same moment, each with its own connection."""

import multiprocessing
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from typing import Any

from django.db import connections

from claims.allocation.requests.resolve import forget_routes

PATIENCE = 60.0

Work = Callable[[int], Any]  # told which of the processes it is; its answer must be picklable


def together(*works: Work) -> list[Any]:
    """All begin when the last is ready. Their answers, in order; what one raises is raised here.

    Forked: Django is there at once. Connections stay behind: each process opens its own.
    """
    connections.close_all()
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(len(works))
    pipes = [context.Pipe(duplex=False) for _ in works]
    with warnings.catch_warnings():
        # Newer Pythons warn of a fork beside threads; ours are fork-safe.
        warnings.simplefilter("ignore", DeprecationWarning)
        processes = [
            context.Process(target=_run, args=(work, k, barrier, pipe[1]), daemon=True)
            for k, (work, pipe) in enumerate(zip(works, pipes, strict=True))
        ]
        for process in processes:
            process.start()
    answers = []
    for process, (ours, theirs) in zip(processes, pipes, strict=True):
        theirs.close()
        assert ours.poll(PATIENCE), "a process hangs"
        answers.append(ours.recv())
        process.join(PATIENCE)
    if errors := [error for kind, error in answers if kind == "error"]:
        raise AssertionError("a process failed:\n" + errors[0])
    return [answer for _, answer in answers]


def _run(work: Work, k: int, barrier: Barrier, pipe: Any) -> None:
    try:
        forget_routes()
        connections["default"].ensure_connection()
        barrier.wait(PATIENCE)
        pipe.send(("answer", work(k)))
    except BaseException:
        pipe.send(("error", traceback.format_exc()))
    finally:
        connections.close_all()
