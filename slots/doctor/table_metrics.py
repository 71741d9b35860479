"""Prometheus metrics of the tables of pools, members and slots."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from pools.lifecycle.selectors import list_pools
from project.kernel.metrics import measures
from slots.members import members_sql
from slots.members.selectors import count_pools

SLOT_STATES = ("open", "closed", "held", "reserved", "draining", "retired")
MEMBER_STATES = ("ready", "cordoned", "leaving", "offline", "lost", "creating", "deleting")


@measures
def measure_slots() -> Iterator[Metric]:
    names = dict(list_pools().values_list("pk", "name"))
    slots = GaugeMetricFamily(
        "berth_slots",
        "Slots by pool and state. Used are held and reserved; open ones go to the next claim.",
        labels=["pool", "state"],
    )
    total = GaugeMetricFamily(
        "berth_slots_total", "Slots that a pool offers: all but retired.", labels=["pool"]
    )
    members = GaugeMetricFamily(
        "berth_members", "Members by pool and state.", labels=["pool", "state"]
    )
    for pool_id, counts in count_pools(names).items():
        total.add_metric([names[pool_id]], counts.slots.total)
        for state in SLOT_STATES:
            slots.add_metric([names[pool_id], state], getattr(counts.slots, state))
        for state in MEMBER_STATES:
            members.add_metric([names[pool_id], state], getattr(counts.members, state))
    yield from (slots, total, members)


@measures
def measure_overdue_slots() -> Iterator[Metric]:
    overdue = GaugeMetricFamily(
        "berth_slots_draining_overdue",
        "Slots that drain longer than their pool allows, until the outside is clean.",
        labels=["pool"],
    )
    for row in members_sql.count_overdue():
        overdue.add_metric([row.pool], row.n)
    yield overdue
