"""`make` installs what Berth needs."""
