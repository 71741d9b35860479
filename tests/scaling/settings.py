"""The settings of the tests, with the providers of the conformance suite: for processes of their own."""

from project.settings.test import *  # noqa: F403
from tests.conformance.worlds import ALL

BERTH_PROVIDERS = ALL
