"""Operations to be performed outside: the outbox table, its Celery tasks, provider budgets and
the relay to Valkey.
"""
