"""What views are given."""

from django.contrib.auth.models import User
from django.http import HttpRequest


class SignedInRequest(HttpRequest):
    """What a view behind ``login_required`` is given."""

    user: User
