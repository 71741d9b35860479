"""The allocator, which serves the queues of waiting claims, and the clean-up of unused queues."""
