"""The target groups of members, as the last sync of this process left them.

Groups that no listener uses are only in the list of the whole region, which has seven pages at the
quotas of AWS. A sync that ended, whole or by its call budget, knows which of them it left. All
syncs of the process share the list of the region.
"""

import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pools.providers.aws.account import Account
from pools.providers.aws.inventory import PortGroup, list_groups
from pools.providers.aws.names import ObjectOwner, is_named_for

# Seconds until a newer list of the region is used: another process may have left a group meanwhile.
LISTED_AGE = 60.0
MemberKey = tuple[str, ObjectOwner]  # with the place


@dataclass(frozen=True, slots=True)
class LeftGroups:
    used: frozenset[str]  # ARNs of those that listeners used
    loose: tuple[PortGroup, ...]  # not used by a listener
    listed_at: float  # when the region was listed


@dataclass(frozen=True, slots=True)
class RegionList:
    groups: tuple[PortGroup, ...] = ()
    at: float = -math.inf  # the time before the call

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() - self.at <= LISTED_AGE


_left: dict[MemberKey, LeftGroups] = {}
# When the last sync of a member ended. While it runs, and after a failure: infinite, because no
# list that was made before its next sync knows the groups that it made.
_ended: dict[MemberKey, float] = {}
_regions: dict[str, RegionList] = {}  # by place


def forget_groups() -> None:
    """For tests: their clouds use the same ids."""
    _left.clear()
    _ended.clear()
    _regions.clear()


class GroupLister:
    """Lists the target groups of one member for one sync."""

    def __init__(self, account: Account, owner: ObjectOwner, balancer: str) -> None:
        self._account, self._owner, self._balancer = account, owner, balancer
        self._key = (account.place, owner)
        self._listed_at = -math.inf

    def list_ours(self, *, is_whole: bool) -> dict[str, PortGroup]:
        """Our groups by ARN. The region is listed if `is_whole`, if a listener has lost its group
        since the last sync, or if the list of this process is older than a minute or than the last
        sync. What the last sync left is forgotten at once, so that a sync that fails leaves no
        group here.
        """
        named = [each for each in self._read(is_whole) if is_named_for(each.name, self._owner)]
        tags = self._account.read_tags(each.arn for each in named)
        return {each.arn: each for each in named if self._owner.owns(tags[each.arn])}

    def _read(self, is_whole: bool) -> Collection[PortGroup]:
        left, ended = _left.pop(self._key, None), _ended.get(self._key, -math.inf)
        _ended[self._key] = math.inf
        known = self._find_known(left, ended)
        if known is None or is_whole:
            return self._list_region()
        used = list_groups(self._account, self._balancer)
        arns = {each.arn for each in used}
        if left is not None and not left.used <= arns:
            return self._list_region()
        self._listed_at = known.at
        return [*used, *(each for each in known.groups if each.arn not in arns)]

    def _find_known(self, left: LeftGroups | None, ended: float) -> RegionList | None:
        """Groups that may be loose; None: nothing of this process is new enough."""
        region = _regions.get(self._key[0], RegionList())
        if region.is_fresh and region.at > ended:
            return region
        if left is not None and (known := RegionList(left.loose, left.listed_at)).is_fresh:
            return known
        return None

    def _list_region(self) -> Collection[PortGroup]:
        self._listed_at = time.monotonic()
        found = tuple(list_groups(self._account))
        _regions[self._key[0]] = RegionList(found, self._listed_at)
        return found

    def keep(self, groups: Mapping[str, PortGroup], used: Collection[str]) -> None:
        """At the end of a sync: our groups, and the groups that listeners use."""
        loose = tuple(group for arn, group in groups.items() if arn not in used)
        left = LeftGroups(frozenset(groups.keys() & set(used)), loose, self._listed_at)
        _left[self._key], _ended[self._key] = left, time.monotonic()
