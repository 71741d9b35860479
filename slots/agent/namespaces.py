"""`python -m slots.agent.namespaces FOLDER`: why tasks cannot have namespaces of their own on this machine. Nothing: they can."""

import sys
import tempfile

from .isolation import why_not

if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as scratch:
        sys.stdout.write(why_not(scratch))
