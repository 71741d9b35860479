from django.urls import path

from pools import views

urlpatterns = [
    path("pools/new/", views.new_pool, name="pool-new"),
    path("pools/<str:name>/edit/", views.edit_pool, name="pool-edit"),
    path("tokens/", views.tokens, name="tokens"),
    path("tokens/<int:token_id>/revoke/", views.revoke, name="token-revoke"),
]
