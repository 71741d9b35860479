"""Ports as a kind of claim: their parts, the backend behind them, and whether they are ready."""
