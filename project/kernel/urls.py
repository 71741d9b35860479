"""Addresses for probes, included at the root."""

from django.urls import path

from .doctor import probe_views

urlpatterns = [
    path("healthz", probe_views.healthz, name="healthz"),
    path("readyz", probe_views.readyz, name="readyz"),
    path("metrics", probe_views.show_metrics, name="metrics"),
]
