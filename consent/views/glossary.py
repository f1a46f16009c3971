"""Glossary page."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe


@require_safe
def glossary(request: HttpRequest) -> HttpResponse:
    """Explain the terms that holders meet; open to everybody."""
    return render(request, "consent/glossary.html")
