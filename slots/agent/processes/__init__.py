"""Processes of a task: started through a reaper, isolated, run as a system user, ended."""
