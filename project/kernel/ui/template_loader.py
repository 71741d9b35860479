"""Loads templates without their indentation, which would enlarge pages and live frames by a
quarter.
"""

import re

from django.template import Origin
from django.template.loaders import filesystem

INDENTATION = re.compile(r"\n[ \t]+")


class Loader(filesystem.Loader):
    """Removes indentation and keeps line breaks, so that errors name the right line. Templates must
    not indent texts in <pre> and <textarea>.
    """

    def get_contents(self, origin: Origin) -> str:
        return INDENTATION.sub("\n", super().get_contents(origin))
