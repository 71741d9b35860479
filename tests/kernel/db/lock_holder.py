"""A process for the tests of locks, which holds the lock of a lane until a line comes.

python -m tests.kernel.db.lock_holder LANE LOST_AFTER
"""

import sys

import django

if __name__ == "__main__":
    django.setup()

from project.kernel.db import locks

if __name__ == "__main__":
    locks.LOST_AFTER = float(sys.argv[2])
    with locks.try_lock(locks.LANE, sys.argv[1]) as got:
        print("held" if got else "not held", flush=True)
        sys.stdin.readline()
