"""The forwarder: a program that accepts TCP connections and UDP datagrams on the ports of a load
balancer and passes them on to the targets that Berth sets. Standard library only; it needs no
privileges, database or secret, and keeps serving while Berth is stopped.
"""
