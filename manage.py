#!/usr/bin/env python
import os
import sys

from project.kernel.management.command_line import main

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings.local")
    main(sys.argv)
