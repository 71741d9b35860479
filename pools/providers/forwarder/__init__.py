"""Load balancers as processes on this machine, for pools of ports."""
