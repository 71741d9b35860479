"""Addresses of tokens, grants and secrets under /api/v1/. The addresses of pools are in
claims/api_urls.py, because their views show slots and delete claims.
"""

from django.urls import path

import pools.http.converters  # noqa: F401  (registers them)
from pools.roles import api as roles_api
from pools.secrets import api as secrets_api

urlpatterns = [
    path("me/", roles_api.MyView.as_view(), name="api-me"),
    path("tokens/", roles_api.TokenList.as_view(), name="api-tokens"),
    path("tokens/<id:token_id>/", roles_api.TokenDetail.as_view(), name="api-token"),
    path("pools/<name:pool_name>/secrets/", secrets_api.SecretList.as_view(), name="api-secrets"),
    path(
        "pools/<name:pool_name>/secrets/<variable:secret_name>/",
        secrets_api.SecretDetail.as_view(),
        name="api-secret",
    ),
    path("grants/", roles_api.GrantList.as_view(), name="api-grants"),
    path("grants/<id:grant_id>/", roles_api.GrantDetail.as_view(), name="api-grant"),
]
