"""The rule for names of workspaces."""

import re

WORKSPACE_RULE = (
    "Up to 120 letters, digits, dots, dashes, underscores and slashes; the first and last a "
    "letter or digit."
)
WORKSPACE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,118}[A-Za-z0-9])?")
