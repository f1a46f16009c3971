"""Addresses: every app brings its own; sign-in, health and the API's documents stand here."""

from django.contrib import admin
from django.urls import path

from ipate_web.health import healthz

urlpatterns = [
    path("admin/", admin.site.urls),
    path("healthz", healthz, name="healthz"),
]
