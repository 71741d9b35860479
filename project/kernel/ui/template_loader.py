"""Loads the templates of Berth without their indentation, which would make pages and live frames
a quarter larger.
"""

import re
from typing import Any

from django.template.loaders import filesystem

INDENTATION = re.compile(r"\n[ \t]+")


class Loader(filesystem.Loader):
    """Each line keeps its number, so that errors name the right one. Texts in <pre> and
    <textarea> are not indented in templates.
    """

    def get_contents(self, origin: Any) -> str:
        return INDENTATION.sub("\n", super().get_contents(origin))
