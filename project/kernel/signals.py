"""What the apps above may want to know of; the kernel knows none of them."""

from django.dispatch import Signal

first_user_made = Signal()  # user: inside the transaction that makes them
