"""Contract of services: they read rows again under the lock if these were read before another change.

Every service is called with rows that were read before something else happened: the study was closed, someone else did
the same, or another row changed. It refuses, or changes nothing. A new service without a case fails.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from datetime import timedelta
from typing import Any, get_type_hints

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.core.files.base import ContentFile
from django.db import transaction
from django.db.models import Model
from django.utils import timezone

import consent.services
import training.services
from consent.models import (
    ConsentForm,
    ConsentFormProposal,
    DataHolder,
    EpsilonPolicy,
    HolderAddress,
    Invitation,
    Mail,
    Membership,
    RoleChange,
    Study,
    WebhookEndpoint,
)
from consent.services import consent_withdraw, holder_link, proposal_remark, study_update
from consent.services.invitations import invitations_create
from consent.services.mail import reminder_ask
from learning.formats import DataError
from tests import factories
from tests.test_repeats import MORE, policy, state
from tests.test_roles import parts, study  # noqa: F401 – fixtures
from tests.training.runs import TABLE, table_rows
from training import alliances
from training.alliances.models import Alliance, AllianceSite
from training.models import Dataset, DatasetImport, Encoder, Run
from training.services.drawings import drawing_last
from training.services.imports import Upload

pytestmark = pytest.mark.django_db

DAY = timedelta(days=30)
FILE = ContentFile(b"length,width\n0.1,0.2\n", "rows.csv")
JOINT = {"method": "sgd", "title": "Joint", "mode": "together", "purpose": ""}


def services() -> dict[str, Callable[..., Any]]:
    """Return functions that accept rows by keyword only, which identifies services."""
    found = {}
    packages = (consent.services, training.services, alliances)
    for package in packages:
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for name, function in vars(importlib.import_module(module.name)).items():
                plain = inspect.unwrap(function) if inspect.isfunction(function) else None
                if plain is None or plain.__module__ != module.name or name.startswith("_"):
                    continue
                kinds = {each.kind for each in inspect.signature(plain).parameters.values()}
                hints = get_type_hints(plain)
                rows = [each for each in hints if each not in ("return", "acting_user") and _is_model(hints[each])]
                if rows and kinds <= {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}:
                    found[name] = function
    return found


def _is_model(hint: Any) -> bool:
    return any(inspect.isclass(each) and issubclass(each, Model) for each in (hint, *getattr(hint, "__args__", ())))


class World:
    """The study of :mod:`tests.test_roles`, whose rows are read again for each access."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._study, self._parts = request.getfixturevalue("study").pk, request.getfixturevalue("parts")

    study = property(lambda self: Study.objects.get(pk=self._study))
    run = property(lambda self: Run.objects.get(status="finished"))
    draft = property(lambda self: Run.objects.get(pk=self._parts["draft"]))
    hub = property(lambda self: Alliance.objects.get(own_name=""))
    site = property(lambda self: Alliance.objects.exclude(own_name="").get())
    holder = property(lambda self: DataHolder.objects.filter(user=None).earliest("pk"))
    form = property(lambda self: ConsentForm.objects.latest("version"))
    public = property(lambda self: Dataset.objects.get(kind="public"))
    imported = property(lambda self: DatasetImport.objects.get())
    encoder = property(lambda self: Encoder.objects.get())
    endpoint = property(lambda self: WebhookEndpoint.objects.get())
    invitation = property(lambda self: Invitation.objects.latest("pk"))
    auditor = property(lambda self: Membership.objects.get(role="auditor"))
    role_change = property(lambda self: RoleChange.objects.get(sequence=self._parts["role_change"]))
    proposal = property(lambda self: ConsentFormProposal.objects.get(sequence=self._parts["proposal"]))
    policy = property(lambda self: EpsilonPolicy.objects.latest("version"))
    address = property(lambda self: HolderAddress.objects.get())

    def by(self, name: str = "operator") -> dict[str, User]:
        return {"acting_user": factories.user_create(name)}

    def usual(self, service: Callable[..., Any]) -> dict[str, Any]:
        """Return the study and the operator, if the service accepts them."""
        accepted = inspect.signature(service).parameters
        return {name: row for name, row in {"study": self.study, **self.by()}.items() if name in accepted}


#: What may happen after the rows were read.
EVENTS: dict[str, Callable[[World], object]] = {
    "closed": lambda w: Study.objects.update(closed_at=timezone.now()),
    "linked": lambda w: DataHolder.objects.filter(pk=w.holder.pk).update(user=factories.user_create("hedwig")),
    "left": lambda w: Alliance.objects.update(left_at=timezone.now()),
    "removed": lambda w: WebhookEndpoint.objects.get().delete(),
    "cancelled": lambda w: Run.objects.filter(status="draft").update(status="cancelled"),
    "approved": lambda w: Run.objects.filter(status="draft").update(status="approved"),
    "confirmed": lambda w: DatasetImport.objects.update(state="importing"),
    "declined": lambda w: Alliance.objects.exclude(own_name="").update(proposals={}),
    "forgotten": lambda w: HolderAddress.objects.all().delete(),
}


def corrected(w: World) -> dict[str, str]:
    return {code: f"{text} Thanks." for code, text in w.form.texts.items()}


def proposed(w: World) -> dict[str, Any]:
    fields = ("private_dataset", "public_dataset", "method", "choices", "student_learner")
    return {"title": "New", **{name: getattr(w.draft, name) for name in fields}, **w.by("otto")}


#: The event after the rows were read ("" if the same is done again), and the service's arguments except the study; the
#: operator acts unless someone else is named.
CASES: dict[str, tuple[str, Callable[[World], dict[str, Any]]]] = {
    "account_close": ("", lambda w: {"user": w.auditor.user, "acting_user": None}),
    "account_reopen": ("", lambda w: {"user": w.auditor.user, "acting_user": None}),
    "account_take": (
        "linked",
        lambda w: {"holder": w.holder, "email": "h@example.org", "password": factories.PASSWORD, "request": None},
    ),
    "address_confirm": ("forgotten", lambda w: {"address": w.address}),
    "administrator_set": ("", lambda w: {"user": w.auditor.user, "appointed": True, "acting_user": None}),
    "alliance_create": ("closed", lambda w: {"name": "N", "sites": ["A", "B", "C"], "schema_of": w.public}),
    "alliance_leave": ("", lambda w: {"alliance": w.site}),
    "alliance_sign": ("", lambda w: {"alliance": w.hub}),
    "alliance_add_to_form": ("left", lambda w: {"alliance": w.hub}),
    "approval_undo": ("approved", lambda w: {"run": w.draft}),
    "check_answer_keep": ("", lambda w: {"holder": w.holder, "form": w.form, "place": 0, "right": True}),
    "check_answers_count": ("", lambda w: {"follows": 0}),
    "circumstance_record": ("", lambda w: {"pseudonym": w.holder.pseudonym, "kind": "died", "reason": "Told."}),
    "conflict_declare": ("", lambda w: {"reason": "A sister.", **w.by("committee")}),
    "consent_form_approve": ("", lambda w: {"proposal": w.proposal, **w.by("committee")}),
    "consent_form_correct": ("closed", lambda w: {"texts": corrected(w)}),
    "consent_form_propose": ("closed", lambda w: {"texts": MORE, "renewal": "required"}),
    "consent_give": ("closed", lambda w: {"holder": w.holder, "level": "HIGH", "form": w.form, "acting_user": None}),
    "consent_keep": ("closed", lambda w: {"holder": w.holder, "epsilon": 1.0, "form": w.form, "acting_user": None}),
    "consent_refuse": ("", lambda w: {"holder": w.holder, "acting_user": None}),
    "consent_withdraw": ("", lambda w: {"holder": w.holder, "acting_user": None}),
    "dataset_import": ("closed", lambda w: {"name": "n", "kind": "public", "rows": table_rows(3), "schema": TABLE}),
    "dataset_provenance_state": ("", lambda w: {"dataset": w.public, "provenance": "Ours."}),
    "dataset_remove": ("", lambda w: {"dataset": w.public, "reason": "Old.", **w.by("steward")}),
    "download_record": ("", lambda w: {"run": w.run, "what": "labels"}),
    "encoder_withdraw": ("", lambda w: {"encoder": w.encoder, "reason": "Old.", **w.by("steward")}),
    "endpoint_create": ("closed", lambda w: {"url": "https://93.184.216.34/", "events": ["run.failed"]}),
    "endpoint_remove": ("", lambda w: {"endpoint": w.endpoint}),
    "endpoint_test": ("removed", lambda w: {"endpoint": w.endpoint}),
    "epsilon_policy_approve": ("", lambda w: {"policy": w.policy, **w.by("committee")}),
    "epsilon_policy_propose": (
        "closed",
        lambda w: {"high": 0.5, "average": 1, "low": 2, "reason": "Less.", **w.by("committee")},
    ),
    "erasure_ask": ("", lambda w: {"holder": w.holder, "acting_user": None}),
    "head_counts_draw": ("", lambda w: {"follows": drawing_last(w.study, "head_counts")}),
    "holders_register": ("closed", lambda w: {"pseudonyms": ["Q-1"]}),
    "import_begin": (
        "closed",
        lambda w: {"upload": Upload("n", "public", FILE, schema=w.public.schema), **w.by("steward")},
    ),
    "import_confirm": ("confirmed", lambda w: {"dataset_import": w.imported, **w.by("steward")}),
    "import_declare": ("confirmed", lambda w: {"dataset_import": w.imported, "schema": w.public.schema}),
    "import_drop": ("", lambda w: {"dataset_import": w.imported}),
    "import_revise": ("confirmed", lambda w: {"dataset_import": w.imported, "schema": {}, **w.by("steward")}),
    "invitation_revoke": ("", lambda w: {"invitation": w.invitation, **w.by("steward")}),
    "invitations_create": ("closed", lambda w: {"open_places": 1, **w.by("steward")}),
    "joint_run_decline": ("declined", lambda w: {"alliance": w.site, "number": "ab"}),
    "joint_run_propose": ("left", lambda w: {"alliance": w.hub, "sites": ["A", "B", "C"], **JOINT}),
    "letterhead_save": ("", lambda w: {"texts": {"en": {"text": "T"}}, "logo": ""}),
    "letter_returned": ("", lambda w: {"holder": w.holder, **w.by("steward")}),
    "letters_print": ("closed", lambda w: {"kind": "receipt", **w.by("steward")}),
    "membership_add": ("", lambda w: {"user": factories.user_create("ada"), "role": "auditor", "acting_user": None}),
    "membership_remove": ("", lambda w: {"membership": w.auditor, "acting_user": None}),
    "model_stage_set": ("", lambda w: {"run": w.run, "stage": "archived"}),
    "model_threshold_set": ("", lambda w: {"run": w.run, "class_name": "a", "sensitivity": 0.9}),
    "news_send": ("closed", lambda w: {"kind": "year"}),
    "owners_register": ("closed", lambda w: {"pseudonyms": ["Q-1"]}),
    "paper_consents_record": ("closed", lambda w: {"consents": [], "scans": {}, **w.by("steward")}),
    "proposal_approve": ("", lambda w: {"proposal": w.proposal, **w.by("committee")}),
    "proposal_remark": (
        "",
        lambda w: {"proposal": w.proposal, "kind": "rejection", "text": "No.", **w.by("committee")},
    ),
    "quorum_set": ("closed", lambda w: {"quorum": 2, **w.by("chair")}),
    "records_expire": ("", lambda w: {}),
    "renewal_drop": ("", lambda w: {"alliance": w.hub}),
    "renewal_propose": ("left", lambda w: {"alliance": w.hub, "site": "A"}),
    "role_change_confirm": ("", lambda w: {"proposal": w.role_change, **w.by("auditor")}),
    "role_change_drop": ("", lambda w: {"proposal": w.role_change, **w.by("auditor")}),
    "run_approve": ("", lambda w: {"run": w.draft, "share": 0.1}),
    "run_cancel": ("cancelled", lambda w: {"run": w.draft}),
    "run_edit": ("approved", lambda w: {"run": w.draft, **proposed(w)}),
    "run_propose": ("closed", proposed),
    "run_withdraw": ("approved", lambda w: {"run": w.draft, **w.by("otto")}),
    "student_ask": ("", lambda w: {"run": w.run, "student_learner": "boosting", "student_parameters": {}}),
    "student_publish": ("", lambda w: {"run": w.run, "version": 1, "reason": "Good."}),
    "student_withdraw": ("", lambda w: {"run": w.run, "version": 1, "reason": "Bad."}),
    "study_close": ("", lambda w: {"reason": "Done.", "erase_after": timezone.localdate() + DAY}),
    "way_wish": ("linked", lambda w: {"holder": w.holder, "way": "letter"}),
}
#: Services for which a case would show nothing, with the reason.
WITHOUT = {
    "within the lock of whoever calls it": (
        "account_change_record account_invitations_end addresses_sweep dataset_check disposal_record invitations_end "
        "question_draw study_close_record"
    ),
    "acts each time, on nothing that was read": (
        "account_invite account_join answer_draft_keep consent_form_draft_save head_counts_enter holder_level_access "
        "link_reissue people_appoint predictions_record"
    ),
    "asks another installation: training/sites": (
        "alliance_connect identity_renew joint_run_go_on joint_run_take renewal_confirm site_register"
    ),
    "as way_wish": "address_leave",
    "needs more than this study": (
        "alliance_join encoder_register harm_write rehearsal_data_import restore_settle result_withdraw"
    ),
    "sees it: below": "holder_link reminder_ask study_update",
}


def prepared(name: str, w: World) -> None:
    """Prepare what has to exist before the rows are read."""
    if name == "address_confirm":
        HolderAddress.objects.create(study=w.study, holder=w.holder, way="mail", email="h@example.org", language="en")
    elif name == "letter_returned":
        invitations_create(study=w.study, acting_user=None, pseudonyms=[w.holder.pseudonym])
    elif name == "account_reopen":
        User.objects.filter(pk=w.auditor.user_id).update(is_active=False)
    elif name == "epsilon_policy_approve":
        policy(w.study)
    elif name in ("dataset_import", "dataset_remove"):
        Encoder.objects.all().delete()
        EVENTS["cancelled"](w)
    elif name == "erasure_ask":
        consent_withdraw(holder=w.holder, acting_user=None, keep=True)
    elif name == "joint_run_propose":
        AllianceSite.objects.update(signature="ab", joined_at=timezone.now())
    elif name == "quorum_set":
        proposal_remark(proposal=w.proposal, kind="rejection", text="No.", **w.by("committee"))
    elif name == "renewal_propose":
        Alliance.objects.update(renewal={})
    elif name == "import_confirm":
        DatasetImport.objects.update(state="checked", faults=0)


def test_a_service_reads_again_what_was_read_before_another_change(request: pytest.FixtureRequest) -> None:
    w, found = World(request), services()
    assert {*CASES, *" ".join(WITHOUT.values()).split()} == set(found)
    wrong = {}
    for name, (change, given) in CASES.items():
        with transaction.atomic():
            prepared(name, w)
            wrong[name] = faults(found[name], EVENTS.get(change), given, w)
            transaction.set_rollback(True)
    assert {name: each for name, each in wrong.items() if each} == {}


def faults(service: Callable[..., Any], change: Callable[[World], None] | None, given: Any, w: World) -> list[str]:
    """Return what the service does with stale rows; it must act on fresh ones."""
    try:
        stale, first = w.usual(service) | given(w), transaction.savepoint()
        service(**w.usual(service) | given(w))
    except Exception as error:
        return [f"with fresh rows: {error!r}"]
    if change is not None:
        transaction.savepoint_rollback(first)
        change(w)
    before = state()
    try:
        with transaction.atomic():
            service(**stale)
    except (ValidationError, DataError, PermissionDenied, ObjectDoesNotExist):
        return []
    except Exception as error:
        return [repr(error)]
    after = state()
    return [table for table in after if after[table] != before[table]]


def test_a_service_keeps_what_another_change_wrote(request: pytest.FixtureRequest) -> None:
    w = World(request)
    old, holder, hedwig = w.study, w.holder, factories.user_create("hedwig")
    Study.objects.update(contact="new@example.org")
    study_update(study=old, title="Better", acting_user=None)
    assert (w.study.contact, w.study.title) == ("new@example.org", "Better")
    DataHolder.objects.filter(pk=holder.pk).update(pseudonym="erased")
    holder_link(holder=holder, user=hedwig)
    assert (DataHolder.objects.get(pk=holder.pk).pseudonym, holder.user) == ("erased", hedwig)
    stale = w.holder
    DataHolder.objects.filter(pk=stale.pk).update(user=factories.user_create("hanna"))
    reminder_ask(holder=stale, days=7)
    assert Mail.objects.get(kind="decide_later").user.username == "hanna"
