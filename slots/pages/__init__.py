"""Pages of members and slots, the queries behind them and how states are displayed."""
