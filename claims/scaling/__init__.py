"""As many members as a policy wants: the scaler, what it sees and decided, what people order,
and the pages and calls about it.
"""
