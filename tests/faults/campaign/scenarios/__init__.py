"""One module for each family of faults."""

import pkgutil
from importlib import import_module


def load_all() -> None:
    """Import each module beside this one: an import registers its scenarios."""
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        import_module(f"{__name__}.{module.name}")
