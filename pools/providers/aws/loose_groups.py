"""The target groups of members, as the last sync of this process left them.

Groups that no listener uses are only in the list of the whole region, which has seven pages at the
quotas of AWS. A sync that ended, whole or by its call budget, knows which of them it left.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pools.providers.aws.account import Account
from pools.providers.aws.inventory import PortGroup, list_groups
from pools.providers.aws.names import ObjectOwner, is_named_for

# Seconds until the region is listed again: another process may have left a group meanwhile.
LISTED_AGE = 600.0


@dataclass(frozen=True, slots=True)
class LeftGroups:
    used: frozenset[str]  # ARNs of those that listeners used
    loose: tuple[PortGroup, ...]  # not used by a listener
    listed_at: float  # when the region was listed


_left: dict[tuple[str, ObjectOwner], LeftGroups] = {}


def forget_groups() -> None:
    """For tests: their clouds use the same ids."""
    _left.clear()


class GroupLister:
    """Lists the target groups of one member for one sync."""

    def __init__(self, account: Account, owner: ObjectOwner, balancer: str) -> None:
        self._account, self._owner, self._balancer = account, owner, balancer
        self._key = (account.place, owner)
        self._listed_at = 0.0

    def list_ours(self, *, is_whole: bool) -> dict[str, PortGroup]:
        """Our groups by ARN. The region is listed if `is_whole`, if no sync of this process has
        ended within ten minutes, or if a listener has lost its group since. What the last sync left
        is forgotten at once, so that a sync that fails leaves no group here.
        """
        named = [each for each in self._read(is_whole) if is_named_for(each.name, self._owner)]
        tags = self._account.read_tags(each.arn for each in named)
        return {each.arn: each for each in named if self._owner.owns(tags[each.arn])}

    def _read(self, is_whole: bool) -> list[PortGroup]:
        left = _left.pop(self._key, None)
        is_known = left is not None and time.monotonic() - left.listed_at <= LISTED_AGE
        if left is not None and is_known and not is_whole:
            used = list_groups(self._account, self._balancer)
            if left.used <= {each.arn for each in used}:
                self._listed_at = left.listed_at
                return [*used, *left.loose]
        self._listed_at = time.monotonic()
        return list_groups(self._account)

    def keep(self, groups: Mapping[str, PortGroup], used: Collection[str]) -> None:
        """At the end of a sync: our groups, and the groups that listeners use."""
        loose = tuple(group for arn, group in groups.items() if arn not in used)
        left = LeftGroups(frozenset(groups.keys() & set(used)), loose, self._listed_at)
        _left[self._key] = left
