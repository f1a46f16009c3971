"""Visit of the bearer of an invitation, and the answer that a person has not confirmed yet.

A visit ends some time after the last page. What the session then still knows is which invitation it was, so that an
answer which comes too late is kept for the same person, and shown to nobody else, until the link is opened again.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import logout
from django.http import HttpRequest
from django.utils import timezone

from consent.forms import NOT_TAKING_PART
from consent.models import DataHolder, Invitation
from consent.selectors import consent_form_in_force, policy_in_force, promise_last

#: How long a visit lasts after the last page that was opened.
LASTS = timedelta(hours=2)
#: How long after that an answer is kept.
REMEMBERED = timedelta(hours=22)
_INVITATION, _ENDS, _ANSWER, _ERASURE, _LATER = "invitation", "visit_ends", "answer", "erasure", "later"
_ANSWER_FIELDS = ("form_version", "policy_version", "promise", "choice", "records", "text", "talked")


@dataclass(frozen=True)
class Visit:
    """Visit by invitation; ``is_over`` once it has to be opened again."""

    invitation_id: int
    ends: datetime

    @property
    def is_over(self) -> bool:
        return self.ends <= timezone.now()


def visit_of(request: HttpRequest) -> Visit | None:
    """Visit by invitation that the session knows, over or not; None for everybody else."""
    session = getattr(request, "session", {})
    if _INVITATION not in session or request.user.is_authenticated:
        return None
    return Visit(session[_INVITATION], datetime.fromisoformat(session[_ENDS]))


def visit_begin(request: HttpRequest, invitation: Invitation) -> None:
    """Begin a visit in a session of its own, which keeps what the same holder has sent late and nothing besides."""
    answer, erasure, later = (request.session.get(name) for name in (_ANSWER, _ERASURE, _LATER))
    logout(request)
    request.session[_INVITATION] = invitation.pk
    if answer and answer["holder"] == invitation.holder_id:
        request.session[_ANSWER] = answer
        if later:
            request.session[_LATER] = later
    if erasure and erasure == invitation.holder_id:
        request.session[_ERASURE] = erasure
    visit_extend(request)


def visit_extend(request: HttpRequest) -> None:
    """Let the visit last from now on."""
    now, later = timezone.now(), request.session.get(_LATER)
    request.session[_ENDS] = (now + LASTS).isoformat()
    remembered = datetime.fromisoformat(later) - now if later else LASTS
    request.session.set_expiry(max(remembered, LASTS) + REMEMBERED)


def visit_forget(request: HttpRequest) -> None:
    """Forget the invitation: the person has an account in this session."""
    for key in (_INVITATION, _ENDS):
        request.session.pop(key, None)


def answer_keep(request: HttpRequest, holder_id: int) -> None:
    """Keep the answer that was sent, valid or not, in the session: it belongs in no address."""
    if "choice" in request.POST:
        data = {name: request.POST.get(name, "") for name in _ANSWER_FIELDS}
        request.session[_ANSWER] = {"holder": holder_id, "data": data}


def withdrawal_keep(request: HttpRequest, holder: DataHolder) -> None:
    """Keep a withdrawal that was sent as the answer of not taking part to what the study asks now."""
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
    """Data of the decision form that the holder sent and has not confirmed, or None."""
    answer = request.session.get(_ANSWER)
    return answer["data"] if answer and answer["holder"] == holder.pk else None


def answer_postpone(request: HttpRequest, until: datetime) -> None:
    """Keep the unconfirmed answer, on this device alone, for somebody who decides later."""
    request.session[_LATER] = until.isoformat()
    if visit_of(request) is not None:
        visit_extend(request)


def answer_is_postponed(request: HttpRequest) -> bool:
    """Whether the person wanted to decide later, so that they are led to all there is to read."""
    return _LATER in request.session


def answer_forget(request: HttpRequest) -> None:
    """Forget the unconfirmed answer."""
    for key in (_ANSWER, _LATER):
        request.session.pop(key, None)


def erasure_keep(request: HttpRequest, holder: DataHolder) -> None:
    """Keep that the holder pressed the button that has records erased; they are asked again before anything is done."""
    request.session[_ERASURE] = holder.pk


def erasure_kept(request: HttpRequest, holder: DataHolder) -> bool:
    """Whether the holder pressed that button after their visit was over."""
    return request.session.get(_ERASURE) == holder.pk


def erasure_forget(request: HttpRequest) -> None:
    """Forget that press: the holder sees the button again."""
    request.session.pop(_ERASURE, None)
