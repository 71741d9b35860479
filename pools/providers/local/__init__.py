"""Local provider: agents as processes on Berth's own machine, and how their tasks are isolated
from Berth.
"""
