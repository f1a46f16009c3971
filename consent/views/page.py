"""View decorators that resolve a request's data holders, by account or by invitation."""

from collections.abc import Callable
from functools import wraps

from django.contrib import messages
from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from consent.models import DataHolder, Invitation
from consent.people.circumstances import answering_for, circumstances_over
from consent.views.visits import answer_keep, erasure_keep, visit_extend, visit_forget, visit_of, withdrawal_keep
from consent.wording.third_person import in_third_person


def holders_reached(request: HttpRequest) -> QuerySet[DataHolder] | None:
    """Holders for whom this session may decide; None without sign-in and without a visit by invitation.

    A guardian or proxy decides for nobody from the day on which they no longer answer.
    """
    over = circumstances_over(timezone.now()).values("holder")
    holders = DataHolder.objects.exclude(pk__in=over).select_related("study").order_by("study__title")
    if request.user.is_authenticated:
        return holders.filter(user_id=request.user.pk)
    visit = visit_of(request)
    if visit is None or visit.is_over:
        return None
    reached = holders.filter(invitations=visit.invitation_id, invitations__revoked_at=None)
    return reached if reached.exists() else None


def acting_user(request: HttpRequest) -> User | None:
    """Signed-in user; None for the bearer of an invitation."""
    return request.user if isinstance(request.user, User) else None


def own_page(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorator of views about all holders of a session. Everybody else is asked to sign in.

    Every page lets a visit by invitation last longer. Whose visit is over is asked for the invitation again; an answer
    that comes too late is kept for them. Whose invitation opens nothing any more is told so.
    """

    @never_cache
    @wraps(view)
    def wrapped(request: HttpRequest, **kwargs: object) -> HttpResponse:
        holders = holders_reached(request)
        visit = visit_of(request)
        if holders is not None:
            if visit is not None:
                visit_extend(request)
            return view(request, holders, **kwargs)
        if visit is not None and not visit.is_over:
            visit_forget(request)
            messages.warning(
                request,
                _(
                    "Nothing was changed, because your invitation's link no longer works. It may have been replaced "
                    "by a newer one, you may have an account by now, or you may no longer answer for this person. "
                    "Open the newer link, sign in, or ask the people who invited you."
                ),
            )
        if visit is None or not visit.is_over:
            return redirect_to_login(request.get_full_path())
        invitation = Invitation.objects.filter(pk=visit.invitation_id).first()
        if invitation is not None and invitation.holder is not None:
            _late_answer_keep(request, invitation.holder)
        return redirect("join")

    return wrapped


def _late_answer_keep(request: HttpRequest, holder: DataHolder) -> None:
    """Keep what was sent to a page of the holder after the visit: an answer, a withdrawal, or a wish for erasure."""
    if request.method == "POST" and request.path == reverse("consent:withdraw", args=[holder.study.slug]):
        withdrawal_keep(request, holder)
    elif request.method == "POST" and request.path == reverse("consent:erase", args=[holder.study.slug]):
        erasure_keep(request, holder)
    else:
        answer_keep(request, holder.pk)


def holder_page(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorator of views about one holder, found by the study's slug; 404 for everybody else."""

    @own_page
    @wraps(view)
    def wrapped(request: HttpRequest, holders: QuerySet[DataHolder], slug: str, **kwargs: object) -> HttpResponse:
        holder = get_object_or_404(holders, study__slug=slug)
        answers = answering_for(holder)
        if answers.represents:
            request.represented = (holder, answers)  # type: ignore[attr-defined]  # what base.html says above the page
            with in_third_person(holder.known_as):
                return view(request, holder, **kwargs)
        return view(request, holder, **kwargs)

    return wrapped
