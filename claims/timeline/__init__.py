"""The event log for people: messages, queries, and the state of the pools at a past moment."""
