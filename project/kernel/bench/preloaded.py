"""Imported once by the process from which all workers of a bench are forked."""

import django

django.setup()
