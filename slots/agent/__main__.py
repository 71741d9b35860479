"""`python -m slots.agent`"""

import sys

from .cli import main

sys.exit(main())
