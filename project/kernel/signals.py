"""Signals of the kernel for the apps above it."""

from django.dispatch import Signal

first_user_made = Signal()  # user: sent inside the transaction that creates the user
