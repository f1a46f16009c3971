"""What the words mean."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe


@require_safe
def glossary(request: HttpRequest) -> HttpResponse:
    """The words that holders meet, in a sentence or two each; open to everybody."""
    return render(request, "consent/glossary.html")
