"""A task's folder: its layout, archives unpacked into it, and the environment of its programs."""
