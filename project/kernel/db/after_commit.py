"""Work that follows a commit. Its failure is logged and changes no answer: what was
committed is done.
"""

from collections.abc import Callable
from typing import Any

from django.db import transaction


def after_commit(work: Callable[..., Any], *given: Any) -> None:
    """Calls `work(*given)` after the present transaction, or at once if there is none. The hook is
    a function with a name, because Django's report of a failed hook asks for its `__qualname__`,
    which a functools.partial lacks.
    """

    def hook() -> None:
        work(*given)

    hook.__qualname__ = f"after_commit({getattr(work, '__qualname__', type(work).__name__)})"
    transaction.on_commit(hook, robust=True)
