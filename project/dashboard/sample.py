"""Pages that load and remove the sample."""

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_POST

from pools.access.permissions import require
from pools.pages.base import PageRequest, confirm, signed_in
from project.kernel.ui.confirm import ConfirmInput, Done, Question
from project.sample.services import (
    is_sample_loaded,
    list_pools_of_sample,
    load_sample,
    remove_sample,
)


@require_POST
@signed_in
def load(request: PageRequest) -> HttpResponse:
    require(request.identity, "configure", None)
    loaded = load_sample()
    messages.success(
        request, "The sample is loaded. Its driver creates claims within a few seconds."
    )
    if loaded.left_out:
        messages.warning(request, loaded.left_out)
    return HttpResponseRedirect("/")


@signed_in
def remove(request: PageRequest) -> HttpResponse:
    require(request.identity, "configure", None)
    names = ", ".join(pool.name for pool in list_pools_of_sample())
    question = Question(
        title="Remove the sample",
        verb="Remove the sample",
        intro=(
            "Its driver stops, its claims are cancelled and its pools are deleted. Other pools "
            "are not affected."
        ),
        facts=[("Pools", names), ("Events", "are kept")],
        reason="none",
        note="It can be loaded again.",
        nothing="" if is_sample_loaded() else "No sample is loaded.",
    )

    def perform(given: ConfirmInput) -> Done:
        remove_sample()
        return Done("The sample is removed.", "/")

    return confirm(request, question, perform, "overview")
