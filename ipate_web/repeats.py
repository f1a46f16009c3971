"""Rules for requests that are sent twice, one rule for each URL that accepts POST.

Forms need no extra field for a one-time key: Django masks the CSRF token differently each time it renders a page, so a
form's token identifies the page where it was filled in.
"""

import base64
import hashlib
import json
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.utils.datastructures import MultiValueDict
from django.utils.deprecation import MiddlewareMixin

from common.repeats import handled_once


class Repeat(Enum):
    """Response of a URL to a request that was sent before."""

    KEY = auto()
    """The first response. Forms are recognised by their page, API calls by the header ``Idempotency-Key``."""
    FOLLOWS = auto()
    """The same response, but nothing changes, because the request has already been carried out."""
    ONCE = auto()
    """A refusal that says what was done."""
    READS = auto()
    """Handled like the first request, because it changes nothing or only the visitor's own session."""
    EACH = auto()
    """Handled like the first request, because each attempt, email or access is deliberately recorded."""
    PROTOCOL = auto()
    """Defined by the protocol of alliances, with its own signatures and numbers."""


def _all(rule: Repeat, names: str) -> dict[str, Repeat]:
    return dict.fromkeys(names.split(), rule)


RULES: dict[str, Repeat] = {
    **_all(
        Repeat.KEY,
        "staff_account_invite staff:alliance_keys staff:alliances staff:consent_form_proposal "
        "staff:consent_form_publish staff:import_new staff:invitations staff:invitations_everyone "
        "staff:invitations_remind staff:joint_run_new staff:letters staff:link_new staff:people_new "
        "staff:policy_approve staff:policy_new staff:run_new staff:run_student_new "
        "staff:webhook_test staff:webhooks api-tokens",
    ),
    **_all(
        Repeat.KEY,
        "api:alliance-runs api:run-students api:runs api:study-head-counts api:study-imports api:study-webhook-test "
        "api:study-webhooks",
    ),
    **_all(
        Repeat.FOLLOWS,
        "account_overview administrator consent:check_answer consent:contact_way consent:decide consent:erase "
        "consent:later consent:study consent:withdraw staff:alliance_act staff:circumstances staff:consent_form_facts "
        "staff:consent_form_new staff:dataset staff:letterhead staff:list_save staff:member_remove "
        "staff:members staff:model_stage staff:model_threshold staff:run_approval_undo staff:run_edit "
        "staff:run_student_publish staff:study_edit staff_account_close staff:person",
    ),
    **_all(
        Repeat.FOLLOWS,
        "api:model-stage api:model-threshold api:proposal-decline api:run-approve api:run-cancel "
        "api:run-student-publish api:run-withdraw",
    ),
    **_all(
        Repeat.ONCE,
        "staff:alliance_leave staff:check_answers staff:committee staff:dataset_remove staff:disposals "
        "staff:encoder_withdraw staff:encoders staff:head_counts staff:import staff:import_columns staff:import_drop "
        "staff:import_store staff:invitation_revoke staff:joint_run_take staff:joint_run_without staff:paper_consent "
        "staff:paper_list staff:role_change staff:run_approve staff:run_cancel staff:run_result_withdraw "
        "staff:run_student_withdraw staff:run_withdraw staff:study_close staff:study_new staff:webhook_remove "
        "staff_account_new api-token-revoke",
    ),
    **_all(
        Repeat.ONCE,
        "api:proposal-take api:run-go-on api:run-student-withdraw api:run-table-withdraw api:studies "
        "api:study-consents api:study-datasets api:study-encoders api:study-import-store",
    ),
    **_all(
        Repeat.READS,
        "account_logout leave metrics queue queue_live search set_language stay staff:consent_form_preview "
        "staff:letters_pdf staff:people_search staff:paper_blank staff:policy_affordable staff:policy_odds "
        "staff:receipt_check api:run-plan",
    ),
    **_all(Repeat.EACH, "join account address staff:holder_look staff:model api:model-predict"),
    **_all(Repeat.PROTOCOL, "api:site-name api:site-register api:site-exchange"),
}
"""Rule for each URL, by the URL's name."""

_KEPT = ("Content-Type", "Content-Disposition", "Location", "Cache-Control")
"""Headers that are kept when a page's response is repeated."""


class RepeatsMiddleware(MiddlewareMixin):
    """Last middleware, which repeats the first response if a form is sent again from the same page.

    A form with different contents, such as another button, is handled as a new request.
    """

    def process_view(
        self, request: HttpRequest, view: Callable[..., HttpResponse], args: Any, kwargs: Any
    ) -> HttpResponse | None:
        """Return the response of a view with the rule :attr:`Repeat.KEY`; None for all others."""
        name = request.resolver_match.view_name if request.resolver_match else ""
        # Do not read the API's requests here: Django would parse the body as a form, and the API would accept it even
        # where it allows no forms.
        is_keyed = request.method == "POST" and RULES.get(name) is Repeat.KEY and not name.startswith("api:")
        token = request.POST.get("csrfmiddlewaretoken") if is_keyed else None
        if not token:
            return None
        digest = digest_of({**dict(request.POST.lists()), "csrfmiddlewaretoken": ""}, request.FILES)
        return handled_once(
            lambda: view(request, *args, **kwargs),
            key=token,
            of=(str(request.user.pk), request.get_full_path(), digest),
            digest=digest,
            stored=_page_stored,
            restored=_page_restored,
        )


def digest_of(sent: Any, files: MultiValueDict[str, UploadedFile]) -> str:
    """Return a digest of everything that a request sends."""
    digest = hashlib.sha256(json.dumps(sent, sort_keys=True, default=str).encode())
    for name, uploads in sorted(files.lists()):
        for upload in uploads:
            digest.update(json.dumps([name, upload.name, upload.size]).encode())
            for chunk in upload.chunks():
                digest.update(chunk)
            upload.seek(0)
    return digest.hexdigest()


def _page_stored(response: HttpResponse) -> bytes | None:
    if response.status_code >= 400:
        return None
    headers = {name: response[name] for name in _KEPT if name in response}
    body = base64.b64encode(response.content).decode()
    return json.dumps({"status": response.status_code, "headers": headers, "body": body}).encode()


def _page_restored(content: bytes) -> HttpResponse:
    kept = json.loads(content)
    return HttpResponse(base64.b64decode(kept["body"]), status=kept["status"], headers=kept["headers"])
