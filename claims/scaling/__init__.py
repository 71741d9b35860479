"""The scaler: reads the demand of pools, applies the decisions of `pools.scaling`, records them,
and takes the orders of operators.
"""
