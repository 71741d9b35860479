"""The Berth agent: runs tasks in the slots of one member. It needs Python 3.8 or newer and only the
standard library.

Imports are relative, because the package has another name in the one-file agent.
"""
