"""What a claim may be asked to run: how it is asked, its sources, the orders of agents, its logs, results, plans and files."""
