"""A campaign of named faults over real stacks: `make faults`, or `python -m tests.faults.campaign`.

A scenario starts its stack once. Each round injects a fault for real, proves that the fault took
effect, measures the time until the system serves again, and audits. The state file has a line for
each finished round, so that an interrupted campaign continues. docs/faults.md is the report.
"""
