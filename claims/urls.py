from django.urls import path

from claims import questions, views

urlpatterns = [
    path("claims/", views.show_claims, name="claims"),
    path("claims/new/", questions.new, name="claim-new"),
    path("claims/release/", questions.release_many, name="claims-release"),
    path("claims/cancel/", questions.cancel_many, name="claims-cancel"),
    path("claims/prioritise/", questions.prioritise_many, name="claims-prioritise"),
    path("claims/<int:claim_id>/", views.show_claim, name="claim"),
    path("claims/<int:claim_id>/release/", questions.release, name="claim-release"),
    path("claims/<int:claim_id>/force-release/", questions.force, name="claim-force"),
    path("claims/<int:claim_id>/cancel/", questions.cancel, name="claim-cancel"),
    path("claims/<int:claim_id>/prioritise/", questions.prioritise, name="claim-prioritise"),
    path("slots/<int:slot_id>/claim/", questions.claim_slot, name="slot-claim"),
    path("pools/<str:name>/delete/", questions.delete, name="pool-delete"),
]
