"""Screenshots of browser tests. BERTH_SHOTS names their folder; without it none is taken."""

import os
from pathlib import Path
from typing import Any

SHOTS = os.environ.get("BERTH_SHOTS", "")


def shoot(page: Any, name: str, *, is_whole: bool = True) -> None:
    """As it is now."""
    if SHOTS:
        page.screenshot(path=str(Path(SHOTS) / f"{name}.png"), full_page=is_whole)


def shoot_all(page: Any, name: str, *, is_whole: bool = True) -> None:
    """Shoots a page in both themes and widths; the narrow width down to the end of the page."""
    if not SHOTS:
        return
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        for width, height in ((1440, 900), (390, 844)):
            page.set_viewport_size({"width": width, "height": height})
            shoot(page, f"{name}-{theme}-{width}", is_whole=is_whole or width == 390)
    page.set_viewport_size({"width": 1440, "height": 900})
