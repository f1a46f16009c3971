"""The front door."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from consent.models import DataHolder
from consent.permissions import studies_with_permission


def home(request: HttpRequest) -> HttpResponse:
    """What iPATE is, for strangers; where to go on, for everyone else."""
    if not request.user.is_authenticated:
        return render(request, "home.html")
    return render(
        request,
        "home.html",
        {
            "holdings": DataHolder.objects.filter(user_id=request.user.pk).select_related("study"),
            "studies": studies_with_permission(request.user, "consent.view_dashboard"),
            "researched": studies_with_permission(request.user, "training.use_student"),
        },
    )
