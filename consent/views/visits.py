"""Holders whom a request is about, identified by an account or by a visit with an invitation.

A visit ends some time after the last page view. After that, the session only stores which invitation was used, so that
an answer that arrives too late can be kept for the same person, and not shown to anyone, until the link is opened
again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from consent.forms import NOT_TAKING_PART
from consent.models import DataHolder, Invitation
from consent.people.circumstances import answering_for, circumstances_ended
from consent.selectors import consent_form_in_force, policy_in_force, promise_last
from consent.services.decisions import answer_draft_keep, answer_draft_of, answer_drafts_forget
from consent.wording.third_person import in_third_person

#: How long a visit lasts after the last page view.
LASTS = timedelta(hours=2)
#: How long a late answer is kept after the visit.
REMEMBERED = timedelta(hours=22)
_INVITATION, _ENDS, _ANSWER, _ERASURE = "invitation", "visit_ends", "answer", "erasure"
_ANSWER_FIELDS = ("form_version", "policy_version", "promise", "choice", "records", "text", "talked")


@dataclass(frozen=True)
class Visit:
    """A visit by invitation; ``is_over`` means that the person has to open the link again."""

    invitation_id: int
    ends: datetime

    @property
    def is_over(self) -> bool:
        return self.ends <= timezone.now()


def visit_of(request: HttpRequest) -> Visit | None:
    """Return the visit by invitation stored in the session, whether or not it has ended; None if there is none."""
    session = getattr(request, "session", {})
    if _INVITATION not in session or request.user.is_authenticated:
        return None
    return Visit(session[_INVITATION], datetime.fromisoformat(session[_ENDS]))


def visit_begin(request: HttpRequest, invitation: Invitation) -> None:
    """Begin a visit in a new session, keeping only data that the same holder entered before the last visit ended."""
    answer, erasure = (request.session.get(name) for name in (_ANSWER, _ERASURE))
    logout(request)
    request.session[_INVITATION] = invitation.pk
    if answer and answer["holder"] == invitation.holder_id:
        request.session[_ANSWER] = answer
    if erasure and erasure == invitation.holder_id:
        request.session[_ERASURE] = erasure
    visit_extend(request)


def visit_extend(request: HttpRequest) -> None:
    """Restart the visit's time limit."""
    request.session[_ENDS] = (timezone.now() + LASTS).isoformat()
    request.session.set_expiry(LASTS + REMEMBERED)


def visit_forget(request: HttpRequest) -> None:
    """Remove the invitation, because the person now has an account in this session."""
    for key in (_INVITATION, _ENDS):
        request.session.pop(key, None)


def answer_keep(request: HttpRequest, holder_id: int) -> None:
    """Store the submitted answer, valid or not, in the session, because it must not appear in a URL."""
    if "choice" in request.POST:
        data = {name: request.POST.get(name, "") for name in _ANSWER_FIELDS}
        request.session[_ANSWER] = {"holder": holder_id, "data": data}


def withdrawal_keep(request: HttpRequest, holder: DataHolder) -> None:
    """Store a submitted withdrawal as the answer "I do not take part" to the current form."""
    form, policy = consent_form_in_force(holder.study), policy_in_force(holder.study)
    last = promise_last(holder)
    data = {
        "form_version": form.version if form else "",
        "policy_version": policy.version if policy else "",
        "promise": repr(last.epsilon) if last else "",
        "choice": NOT_TAKING_PART,
        "records": request.POST.get("records", ""),
    }
    request.session[_ANSWER] = {"holder": holder.pk, "data": data}


def answer_kept(request: HttpRequest, holder: DataHolder) -> dict[str, Any] | None:
    """Return the data that the holder last entered in the decision form but did not confirm; None without any."""
    answer = request.session.get(_ANSWER)
    return answer["data"] if answer and answer["holder"] == holder.pk else answer_draft_of(holder)


def answer_postpone(request: HttpRequest, holder: DataHolder) -> None:
    """Store the ticked answer for someone who decides later, possibly on another device."""
    answer_keep(request, holder.pk)
    if answer := answer_kept(request, holder):
        answer_draft_keep(holder=holder, answer=answer)


def answer_is_postponed(holder: DataHolder) -> bool:
    """Return whether the person wanted to decide later, in which case they are redirected to all the information."""
    return answer_draft_of(holder) is not None


def answer_forget(request: HttpRequest, holder: DataHolder) -> None:
    """Delete the unconfirmed answer."""
    request.session.pop(_ANSWER, None)
    answer_drafts_forget([holder.pk])


def erasure_keep(request: HttpRequest, holder: DataHolder) -> None:
    """Store that the holder pressed the button to erase records. They are asked again before anything is erased."""
    request.session[_ERASURE] = holder.pk


def erasure_kept(request: HttpRequest, holder: DataHolder) -> bool:
    """Return whether the holder pressed the erase button after their visit had ended."""
    return request.session.get(_ERASURE) == holder.pk


def erasure_forget(request: HttpRequest) -> None:
    """Forget that the erase button was pressed, so that the holder sees the button again."""
    request.session.pop(_ERASURE, None)


def holders_reached(request: HttpRequest) -> QuerySet[DataHolder] | None:
    """Return the holders for whom this session may decide; None without a sign-in or a valid visit by invitation.

    This excludes holders whose guardian or proxy no longer answers.
    """
    over = circumstances_ended(timezone.now()).values("holder")
    holders = DataHolder.objects.exclude(pk__in=over).select_related("study").order_by("study__title")
    if request.user.is_authenticated:
        return holders.filter(user_id=request.user.pk)
    visit = visit_of(request)
    if visit is None or visit.is_over:
        return None
    reached = holders.filter(invitations=visit.invitation_id, invitations__revoked_at=None)
    return reached if reached.exists() else None


def acting_user(request: HttpRequest) -> User | None:
    """Return the signed-in user, or None for the bearer of an invitation."""
    return request.user if isinstance(request.user, User) else None


def own_page(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorator for views about all holders of a session. Visitors without a holder are asked to sign in.

    Every page extends a visit by invitation. People whose visit has ended are asked for the invitation again, and a
    late answer is kept for them. If an invitation no longer works, a page explains this.
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
                    "by a newer one, you may already have an account, or you may no longer answer for this person. "
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
    """Store a request made after the visit on one of the holder's pages: an answer, a withdrawal or an erasure."""
    if request.method == "POST" and request.path == reverse("consent:withdraw", args=[holder.study.slug]):
        withdrawal_keep(request, holder)
    elif request.method == "POST" and request.path == reverse("consent:erase", args=[holder.study.slug]):
        erasure_keep(request, holder)
    else:
        answer_keep(request, holder.pk)


def holder_page(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorator for views about one holder, found by the study's slug; responds with 404 to everyone else."""

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
