"""View decorators that resolve a request's data holders, by account or by invitation."""

from collections.abc import Callable
from functools import wraps

from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.cache import never_cache

from consent.models import DataHolder

#: Where the session keeps the id of the invitation whose link was opened.
INVITATION = "invitation"


def holders_reached(request: HttpRequest) -> QuerySet[DataHolder] | None:
    """Holders for whom this session may decide; None without sign-in and without an opened invitation."""
    holders = DataHolder.objects.select_related("study").order_by("study__title")
    if request.user.is_authenticated:
        return holders.filter(user_id=request.user.pk)
    if INVITATION in request.session:
        opened = {"invitations": request.session[INVITATION], "invitations__revoked_at": None}
        reached = holders.filter(**opened, user=None)
        return reached if reached.exists() else None
    return None


def acting_user(request: HttpRequest) -> User | None:
    """Signed-in user; None for the bearer of an invitation."""
    return request.user if isinstance(request.user, User) else None


def own_page(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorator of views about all holders of a session. Everybody else is asked to sign in."""

    @never_cache
    @wraps(view)
    def wrapped(request: HttpRequest, **kwargs: object) -> HttpResponse:
        holders = holders_reached(request)
        if holders is None:
            return redirect_to_login(request.get_full_path())
        return view(request, holders, **kwargs)

    return wrapped


def holder_page(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorator of views about one holder, found by the study's slug; 404 for everybody else."""

    @own_page
    @wraps(view)
    def wrapped(request: HttpRequest, holders: QuerySet[DataHolder], slug: str, **kwargs: object) -> HttpResponse:
        return view(request, get_object_or_404(holders, study__slug=slug), **kwargs)

    return wrapped
