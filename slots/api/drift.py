"""REST API of differences outside: the list, and the repairs that a person orders."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from pools.access.permissions import require
from pools.http.endpoint import Endpoint, describe, describe_changes, read_body
from pools.lifecycle.selectors import get_pool
from pools.models import Pool
from project.kernel.errors import FieldError, Invalid
from project.kernel.http.api_base import TextInput
from slots.api import schemas
from slots.members.store import no_such_slot
from slots.models import Slot
from slots.sync.drift import list_drift
from slots.sync.orders import order_look, repair_slot
from slots.sync.quarantine import end_quarantine, list_quarantined, quarantine_slot
from slots.sync.slot_drift import KINDS
from slots.sync.stray_orders import adopt_stray, delete_stray, find_stray, keep_stray

TAG = "differences outside"
REPAIRS = ("repair", "quarantine", "adopt", "delete", "keep")


class DriftFindingAnswer(schemas.Shape):
    kind = serializers.ChoiceField(KINDS)
    where = serializers.CharField(help_text="Lane and number, or the name of an object outside.")
    member = serializers.CharField(allow_blank=True)
    member_id = serializers.IntegerField(allow_null=True)
    slot_id = serializers.IntegerField(
        allow_null=True, help_text="null: an object without a member."
    )
    claim_id = serializers.IntegerField(allow_null=True)
    stray_id = serializers.IntegerField(
        help_text="Names an object without a member in the calls under strays/; 0: none."
    )
    found = serializers.CharField()
    then = serializers.CharField(help_text="What Berth or an operator does about it.")
    since = serializers.DateTimeField(allow_null=True)
    is_quarantined = serializers.BooleanField()
    repairs = serializers.ListField(
        child=serializers.ChoiceField(REPAIRS), help_text="What an operator may order."
    )


class QuarantinedSlotAnswer(schemas.Shape):
    slot_id = serializers.IntegerField()
    member_id = serializers.IntegerField()
    member = serializers.CharField()
    lane = serializers.CharField()
    number = serializers.IntegerField()
    claim_id = serializers.IntegerField(allow_null=True, help_text="It keeps the slot.")
    reason = serializers.CharField()
    by = serializers.CharField()
    since = serializers.DateTimeField()


class DriftAnswer(schemas.Shape):
    observed_at = serializers.DateTimeField(allow_null=True, help_text="Start of the last look.")
    findings = DriftFindingAnswer(many=True)
    quarantined = QuarantinedSlotAnswer(many=True)


class StrayDeletionBody(schemas.NeededReasonBody):
    confirm = TextInput(
        max_length=500, help_text="The name of the object (`where`), typed by the operator."
    )


describe_order = describe_changes(DriftAnswer, TAG)


def answer_drift(pool: Pool) -> Response:
    fresh = Pool.objects.get(pk=pool.pk)
    shown = {
        "observed_at": fresh.observed_at,
        "findings": list_drift([fresh]),
        "quarantined": list_quarantined([fresh.pk]),
    }
    return Response(DriftAnswer(shown).data)


class PoolDrift(Endpoint):
    @describe("Differences outside", {200: DriftAnswer}, name="list_drift", tag=TAG)
    def get(self, request: Request, pool_name: str) -> Response:
        """What the provider has against what Berth recorded, as the last looks and syncs found it,
        and the slots in quarantine. At most 1,000 findings in slots.
        """
        pool = get_pool(pool_name)
        require(self.identity, "read", pool)
        return answer_drift(pool)


class PoolEndpoint(Endpoint):
    """Orders of operators about a pool. Each answers with the differences of the pool."""

    def find_pool(self, pool_name: str) -> Pool:
        pool = get_pool(pool_name)
        require(self.identity, "repair", pool)
        return pool


class PoolSweep(PoolEndpoint):
    @describe_order("Look at a pool now", schemas.ReasonBody, "sweep_pool")
    def post(self, request: Request, pool_name: str) -> Response:
        """Makes the next look at the provider due now. The answer shows the last look."""
        pool = self.find_pool(pool_name)
        order_look(pool_id=pool.pk, **read_body(request, schemas.ReasonBody))
        return answer_drift(pool)


class StrayAdopt(PoolEndpoint):
    @describe_order("Adopt a memberless object", schemas.NeededReasonBody, "adopt_stray", 422)
    def post(self, request: Request, pool_name: str, stray_id: int) -> Response:
        """The object becomes a member and counts against the maximum. Its listeners serve no claim
        here, so its first sync removes them.
        """
        pool = self.find_pool(pool_name)
        body = read_body(request, schemas.NeededReasonBody)
        adopt_stray(pool_id=pool.pk, member_id=stray_id, **body)
        return answer_drift(pool)


class StrayDelete(PoolEndpoint):
    @describe_order("Delete an object without a member", StrayDeletionBody, "delete_stray", 422)
    def post(self, request: Request, pool_name: str, stray_id: int) -> Response:
        """Berth deletes the object after the next look that finds it, and tries again until a look
        no longer does. Foreign listeners on it prevent the deletion.
        """
        pool = self.find_pool(pool_name)
        body = read_body(request, StrayDeletionBody)
        name = find_stray(pool, stray_id).name
        if body.pop("confirm") != name:
            text = "This is not the name of the object."
            raise Invalid(fields=[FieldError("confirm", text, f"Type {name}.")])
        delete_stray(pool_id=pool.pk, member_id=stray_id, **body)
        return answer_drift(pool)


class StrayKeep(PoolEndpoint):
    @describe_order("Keep an object that is to be deleted", schemas.ReasonBody, "keep_stray")
    def post(self, request: Request, pool_name: str, stray_id: int) -> Response:
        """Withdraws the order. A call to the provider that runs meanwhile may still delete."""
        pool = self.find_pool(pool_name)
        keep_stray(pool_id=pool.pk, member_id=stray_id, **read_body(request, schemas.ReasonBody))
        return answer_drift(pool)


class SlotEndpoint(Endpoint):
    def find_slot(self, slot_id: int) -> Pool:
        """The pool of the slot."""
        hidden = no_such_slot(slot_id)
        slot = Slot.objects.select_related("pool").filter(pk=slot_id).first()
        if slot is None:
            raise hidden
        require(self.identity, "repair", slot.pool, hidden=hidden)
        return slot.pool

    def order(self, slot_id: int, service: Any, body: type[schemas.Shape]) -> Response:
        pool = self.find_slot(slot_id)
        service(slot_id=slot_id, **read_body(self.request, body))
        return answer_drift(pool)


class SlotRepair(SlotEndpoint):
    @describe_order("Repair a slot", schemas.NeededReasonBody, "repair_slot")
    def post(self, request: Request, slot_id: int) -> Response:
        """The provider makes the member of the slot equal to its rows now. Claims keep their
        slots.
        """
        return self.order(slot_id, repair_slot, schemas.NeededReasonBody)


class SlotQuarantine(SlotEndpoint):
    @describe_order("Put a slot into quarantine", schemas.NeededReasonBody, "quarantine_slot")
    def post(self, request: Request, slot_id: int) -> Response:
        """No claim gets the slot until the quarantine ends. A claim that holds it keeps it."""
        return self.order(slot_id, quarantine_slot, schemas.NeededReasonBody)


class SlotEndQuarantine(SlotEndpoint):
    @describe_order("End the quarantine of a slot", schemas.ReasonBody, "end_quarantine")
    def post(self, request: Request, slot_id: int) -> Response:
        """Offers the slot again, if its member takes claims and no foreign object has its place."""
        return self.order(slot_id, end_quarantine, schemas.ReasonBody)
