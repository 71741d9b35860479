"""Provider of agents that an operator starts on other machines."""
