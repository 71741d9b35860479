"""Load balancers of Tencent Cloud (CLB) as members, and their listeners as slots."""
