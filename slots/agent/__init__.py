"""The Berth agent: runs tasks in the slots of one member. Standard library only, Python
3.8 or newer.

Imports inside are relative, because the package has another name in the one-file agent.
"""
