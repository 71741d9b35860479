"""How long the scaler relies on a look at the outside."""

from typing import Any, ClassVar

import pytest

from claims.scaling.snapshot import fresh_seconds
from slots.sync.watcher import LOOK_EVERY, Watcher
from tests.claims.scaling.template_provider import MoldProvider


class OftenProvider(MoldProvider):
    kind: ClassVar[str] = "often"
    look_every: ClassVar[float] = 1.0


class QuickProvider(MoldProvider):
    kind: ClassVar[str] = "quick"
    look_every: ClassVar[float] = 8.0


@pytest.mark.parametrize(
    ("provider", "seconds"),
    [("often", 2 * Watcher.resync), ("quick", 16.0), ("unknown", 2 * LOOK_EVERY)],
)
def test_look_counts_for_two_turns_of_the_watcher(
    settings: Any, provider: str, seconds: float
) -> None:
    """A provider cannot be looked at more often than the watcher looks. Else no look would be
    fresh at the moment of a decision, and no member would be removed or rolled.
    """
    settings.BERTH_PROVIDERS = [f"{__name__}.{name}" for name in ("OftenProvider", "QuickProvider")]
    assert fresh_seconds(provider) == seconds
