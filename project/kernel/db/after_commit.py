"""Work after a commit. A failure is logged and does not reach the caller, because its change is
committed.
"""

from collections.abc import Callable

from django.db import transaction


def after_commit(work: Callable[..., object], *given: object) -> None:
    """Calls `work(*given)` after the current transaction, or at once without a transaction. The
    hook is a named function, because Django's report of a failed hook reads its `__qualname__`,
    which a functools.partial lacks.
    """

    def hook() -> None:
        work(*given)

    hook.__qualname__ = f"after_commit({getattr(work, '__qualname__', type(work).__name__)})"
    transaction.on_commit(hook, robust=True)
