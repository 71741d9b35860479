"""Faults of a configuration that only the cloud knows: credentials, region, and load balancers that
the user owns.

A cloud that does not answer is no fault of the configuration. The cloud has no dry run of a
creation, so wrong ids of VPCs and subnets show with the first member.
"""

from pools.config.parsing import field_path
from pools.providers.base import PoolSnapshot
from pools.providers.tencent.client import ClbClient
from pools.providers.tencent.errors import RequestRejected
from project.kernel.errors import FieldError
from project.kernel.outbox.operations import ProviderError, Unauthorised

WHERE = "provider"


def find_faults(client: ClbClient, pool: PoolSnapshot) -> list[FieldError]:
    owned = [each.external_id for each in pool.members if each.external_id and not each.is_owned]
    try:
        client.describe_quota()
        found = {each.id: each for each in client.describe_load_balancers(owned)}
    except Unauthorised as error:
        return [FieldError(WHERE, str(error))]
    except RequestRejected as error:
        return [FieldError(field_path(WHERE, "region"), str(error))]
    except ProviderError:
        return []
    faults = []
    for name in owned:
        if name not in found:
            fault = f"The region {client.region} has no load balancer {name} for this account."
            way_out = "Check its id, and the region of the pool."
            faults.append(FieldError(field_path(WHERE, "region"), fault, way_out))
        elif found[name].is_classic:
            fault = f"{name} is a classic load balancer, which cannot serve a pool."
            faults.append(FieldError(WHERE, fault, "Name an application load balancer."))
    return faults
