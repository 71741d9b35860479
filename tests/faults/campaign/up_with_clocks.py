"""`make up` whose children have a wall clock each: a file named like the child, in the folder of
BERTH_TEST_CLOCKS, says by how many seconds it is off.
"""

import os
import sys
from pathlib import Path

from project.kernel.embedded import up
from project.kernel.embedded.supervisor import Child


class UpWithClocks(up.Up):
    def child(self, name: str, *arguments: str, fds: tuple[int, ...] = ()) -> Child:
        found = super().child(name, *arguments, fds=fds)
        found.environment |= {
            "LD_PRELOAD": os.environ["BERTH_TEST_CLOCK_LIBRARY"],
            "BERTH_TEST_CLOCK": str(Path(os.environ["BERTH_TEST_CLOCKS"]) / name),
        }
        return found


if __name__ == "__main__":
    up.Up = UpWithClocks  # type: ignore[misc]
    sys.exit(up.main())
