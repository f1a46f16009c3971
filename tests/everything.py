"""A study in which everything has happened once, and the addresses of pages, for tests of all pages."""

import json
from collections.abc import Iterator

from allauth.account.models import EmailAddress
from django.contrib.auth.models import Permission, User
from django.core.files.base import ContentFile
from django.urls import URLPattern, URLResolver
from django.utils import timezone

from common.models import WorkerHeartbeat
from common.noise import SimulationNoise
from consent import services
from consent.models import DataHolder, HolderAddress, Role, Study, WebhookDelivery, WebhookEndpoint
from consent.services.accounts import account_create
from consent.services.changes import changes_recorded
from consent.services.holders import holder_level_access
from consent.services.invitations import link_reissue
from consent.services.mail import mails_send
from consent.services.webhooks import endpoint_test
from ipate_web.api.base import outside
from tests import factories
from tests.learning.encoders.networks import image_encoder
from tests.snapshots import built_once
from tests.training.asking import (
    CLEAR_RUN,
    COUNTED_STEPS_RUN,
    COUNTS_RUN,
    SAMPLED_RUN,
    STEPS_RUN,
    SYNTHESIS_RUN,
    batch_ask,
    run_ask,
)
from tests.training.runs import TABLE_RUN, rehearsal_with_table, run_draft, run_finish, run_start, study_with_table
from training.alliances.renewals import renewal_propose
from training.alliances.services import alliance_create, alliance_sign, site_register
from training.models import Alliance, AllianceSite, DatasetImport, Encoder
from training.services.drawings import head_counts_draw
from training.services.encoders import encoder_register
from training.services.erasures import records_erase
from training.services.imports import Upload, import_begin, import_declare, import_work
from training.services.students import student_ask, student_learn

#: Half of every cap pays for all points.
RUN = TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 20.0}}

#: Choices for another version of a student.
BOOSTED = {"student_learner": "boosting", "student_parameters": {"iterations": 2, "leaf": 1}}

#: Reasons why the tour does not open some addresses, each with the names of the addresses, separated by spaces.
NO_PAGES = {
    "Django's own": "admin:",
    "for programs": "api: schema healthz readyz metrics",
    "a picture": "logo",
    "files, in English, that MkDocs makes": "documents document",
    "a button": (
        "set_language account_logout leave stay consent:decide consent:check_answer staff:check_answers "
        "staff:list_save staff:people_search staff:webhook_test staff:alliance_act staff:import_store "
        "staff:run_approval_undo mfa_login_webauthn"
    ),
    "leads on": "open_link consent:learned openid_connect_callback socialaccount_signup",
    "a part of another page": (
        "staff:consent_form_preview staff:policy_odds staff:run_live queue_live staff:run_students staff:import_live "
        "staff:study_budgets"
    ),
    "needs a run across sites: test_alliance_pages.py": "staff:joint_run_without",
    "a download": (
        "staff:import_faults staff:import_columns_file consent:receipt_pdf consent:receipt_proof "
        "consent:receipt_json consent:export staff:consents_export staff:study_impact staff:letters_pdf "
        "staff:ledger_export staff:run_labels_file staff:run_result_file staff:ledger_report_pdf "
        "staff:study_budget_file staff:run_student_model staff:run_student_onnx mfa_download_recovery_codes"
    ),
    "the form of account_reset_password_from_key": "account_set_password",
    "needs a key: browser/test_budgets.py": "mfa_reauthenticate_webauthn mfa_edit_webauthn mfa_remove_webauthn",
}
_NAMES_OF_NO_PAGES = " ".join(NO_PAGES.values()).split()


def addresses(patterns: list[URLPattern | URLResolver], namespace: str = "") -> Iterator[str]:
    """Yield the name of each address of the site, except API addresses of objects that do not exist."""
    for pattern in (each for each in patterns if getattr(each, "callback", None) is not outside):
        if isinstance(pattern, URLResolver):
            inner = f"{namespace}{pattern.namespace}:" if pattern.namespace else namespace
            yield from addresses(pattern.url_patterns, inner)
        else:
            yield f"{namespace}{pattern.name or pattern.pattern}"


def is_page(name: str) -> bool:
    return not any(name == each or (each.endswith(":") and name.startswith(each)) for each in _NAMES_OF_NO_PAGES)


def study_with_everything() -> Study:
    """Return a study in which everything has happened once: asked, decided, withdrawn, trained, voted, viewed."""
    study = _with_everything()
    User.objects.get(username="olga").user_permissions.add(Permission.objects.get(codename="add_study"))
    return study


@built_once
def _with_everything() -> Study:
    study = study_with_table("digits", title="Reading digits", retain_votes=True)
    olga, dan = factories.user_create("olga"), factories.user_create("dan")
    services.membership_add(study=study, user=factories.user_create("carla"), role=Role.CHAIR, acting_user=None)
    services.membership_add(study=study, user=dan, role=Role.RESEARCHER, acting_user=None)
    services.membership_add(study=study, user=dan, role=Role.OPERATOR, acting_user=olga)  # pending
    holders = DataHolder.objects.filter(study=study).order_by("pk")
    services.holder_link(holder=holders[0], user=factories.user_create("hanna"))
    voted = run_finish(run_start(study, title="First vote", share=0.5, **RUN))
    for each in (voted.trainings.get(), student_ask(run=voted, acting_user=olga, **BOOSTED)):
        student_learn(each.pk)
    student_ask(run=voted, acting_user=olga, **BOOSTED)  # being trained
    run_ask(run_start(study, title="All were asked", share=0.1, **CLEAR_RUN))
    run_ask(run_start(study, title="Steps were taken", share=0.1, **STEPS_RUN))
    run_ask(run_start(study, title="Samples were drawn", share=0.05, **SAMPLED_RUN | {"public_dataset": None}))
    run_ask(run_start(study, title="People were counted", share=0.05, **COUNTS_RUN))
    run_ask(run_start(study, title="Rows were drawn", share=0.05, **SYNTHESIS_RUN))
    run_ask(run_start(study, title="Steps were counted", share=0.02, **COUNTED_STEPS_RUN))
    batch_ask(run_start(study, title="All are asked", share=0.05, **CLEAR_RUN))
    run_draft(study, title="All to be asked", **CLEAR_RUN)
    run_draft(study, title="Steps to be taken", **STEPS_RUN)
    run_draft(study, title="Samples to be drawn", **SAMPLED_RUN)
    run_draft(study, title="People to be counted", **COUNTS_RUN)
    run_draft(study, title="Rows to be drawn", **SYNTHESIS_RUN)
    run_draft(study, title="Next vote", **RUN)
    run_start(study, title="Waiting", share=0.1, **RUN)
    encoder_make(study)
    alliances_make(study)
    rehearsal = rehearsal_with_table("rehearsal")
    run_finish(run_start(rehearsal, title="Rehearsed", seed=1, **TABLE_RUN))
    run_draft(rehearsal, title="To be rehearsed", **TABLE_RUN)
    run_ask(run_start(rehearsal, title="Baseline", seed=1, **SAMPLED_RUN | {"variant": "group_after_group"}))
    head_counts_draw(study=study, acting_user=olga, noise=SimulationNoise(1))
    policy = {"high": 0.5, "average": 2, "low": 4, "reason": "More of it."}
    services.epsilon_policy_propose(study=study, acting_user=factories.user_create("conrad"), **policy)
    factories.form_propose(study, {"en": "# New\nMore words.", "de": "# Neu\nMehr Worte."})
    texts = {"en": "# New\nWords.", "de": "# Neu\nWorte."}
    services.consent_form_draft_save(study=study, acting_user=olga, texts=texts)
    holder_level_access(study=study, pseudonym=holders[1].pseudonym, acting_user=olga, reason="They called.")
    services.consent_withdraw(holder=holders[1], acting_user=None, keep=True)
    services.holder_link(holder=holders[1], user=factories.user_create("hedwig"))
    services.consent_withdraw(holder=holders[4], acting_user=None)
    records_erase(study.pk)
    factories.study_open("over", title="Long over")
    link_reissue(study=study, pseudonym=holders[2].pseudonym, acting_user=olga, reason="Lost the letter.")
    factories.user_create("root", is_superuser=True, is_staff=True)
    account_create(username="waiting", first_name="W.", last_name="Ait", email="w@example.org", acting_user=None)
    address = {"way": "mail", "email": "left@example.org", "language": "en", "confirmed_at": timezone.now()}
    left = HolderAddress(study=study, holder=holders[5], **address)
    with changes_recorded([left], acting_user=None):
        left.save()
    hanna = User.objects.get(username="hanna")
    EmailAddress.objects.create(user=hanna, email="hanna@example.org", verified=True, primary=True)
    EmailAddress.objects.create(user=hanna, email="new@example.org")
    mails_send("password_reset", [hanna.pk])
    factories.study_create("empty")
    services.holders_register(study=study, pseudonyms=["guest"])
    endpoint = WebhookEndpoint(study=study, url="https://hooks.example.org/", events=["run.failed"], created_by=hanna)
    with changes_recorded([endpoint], acting_user=hanna):
        endpoint.save()
    delivery = endpoint_test(endpoint=endpoint)
    WebhookDelivery.objects.filter(pk=delivery.pk).update(tries=1, fault="ConnectionRefusedError")
    WorkerHeartbeat.objects.create(name="celery@worker-1.example.org:4711", heard_at=timezone.now())
    return study


def encoder_make(study: Study) -> Encoder:
    """Return an encoder of images, which suits no dataset of a table."""
    file = image_encoder()
    return encoder_register(
        study=study,
        acting_user=factories.user_create("olga"),
        name="Small",
        content=file.content,
        takes=file.takes.to_json(),
        licence="MIT",
        source="https://models.example.org/small",
        stated=True,
    )


def alliances_make(study: Study) -> list[Alliance]:
    """Return an alliance with the study as hub, and one with the study as a site to which a run is proposed.

    A new key of a site is pending at the hub.
    """
    public = study.datasets.filter(kind="public").earliest("pk")
    olga = factories.user_create("olga")
    hub, _codes = alliance_create(
        study=study, name="Clinic", sites=["A", "B", "C"], schema_of=public, public=public, acting_user=olga
    )
    AllianceSite.objects.filter(alliance=hub).update(public_key="ab" * 32)
    hub = alliance_sign(alliance=hub, acting_user=olga)
    code = renewal_propose(alliance=hub, site="A", acting_user=factories.user_create("otto"))
    site_register(alliance=hub, code=code, key="cd" * 32)
    text = json.dumps({"title": "Steps to be taken", "purpose": "", "method": "sgd", "share": 0.5})
    site = Alliance(
        study=study,
        name="Wards",
        own_name="A",
        terms=hub.terms,
        address="https://hub.example.org",
        proposals={"ab": {"content": "", "signature": "", "told": text}},
    )
    with changes_recorded([site], acting_user=olga):
        site.save()
    return [hub, site]


def imports_begin(study: Study) -> list[DatasetImport]:
    """Return imports in every state that a page shows: draft, with errors, without errors, in progress, done."""
    steward = factories.user_create("sven")
    sound = "who,age,sex,ill\nada,50,f,no\nben,25,m,yes\n"
    begun = []
    for name, text in (("Draft", sound), ("Errors", sound + "=1,x,d,maybe\n"), ("Sound", sound), ("Under way", sound)):
        file = ContentFile(text.encode(), "patients.csv")
        one = import_begin(study=study, upload=Upload(name, "private", file), acting_user=steward)
        if name != "Draft":
            columns = [
                {"name": "who", "role": "holder"},
                {"name": "age", "role": "feature", "type": "numeric", "minimum": 0, "maximum": 40},
                {"name": "sex", "role": "feature", "type": "categorical", "values": ["f", "m"]},
                {"name": "ill", "role": "label"},
            ]
            document = {"kind": "table", "columns": columns, "classes": ["no", "yes"]}
            import_declare(dataset_import=one, schema=document, acting_user=steward)
            if name != "Under way":
                import_work(str(one.pk))
        begun.append(one)
    return begun
