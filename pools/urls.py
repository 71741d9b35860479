from django.urls import path

import pools.http.converters  # noqa: F401  (registers them)
from pools.pages import views

urlpatterns = [
    path("pools/new/", views.new_pool, name="pool-new"),
    path("pools/<str:name>/edit/", views.edit_pool, name="pool-edit"),
    path("tokens/", views.tokens, name="tokens"),
    path("tokens/<id:token_id>/revoke/", views.revoke, name="token-revoke"),
]
