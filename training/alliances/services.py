"""Services to found and sign an alliance at the hub, and to join and leave it at sites.

A site can join only if its consent form describes exactly this alliance. Its ethics committee and a second person
therefore decide about an alliance in the same way as about a consent form.
"""

import json
import logging
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from common.models import locked
from common.sentences import Sentence, gettext_noop
from consent.models import ConsentFormDraft, Level, Study
from consent.selectors import consent_form_in_force
from consent.services import consent_form_draft_save, draft_facts, study_lock, study_open_check, study_update
from consent.services.changes import changes_recorded
from learning.formats import encodes_alike, schema_from_json
from learning.sites.documents import DOMAIN, AllianceDocument, Refused, RunDocument, public_key, sign
from training.alliances.approvals import facts_of_alliance, form_describes, refusal
from training.alliances.documents import alliance_verify, digest_of, document_text, points_digest
from training.alliances.exchange import exchange
from training.alliances.renewals import key_register
from training.alliances.wire import Hub, Unreachable, code_digest, identity, invitation_read
from training.engine.records import records_store
from training.engine.scheduling import send
from training.models import Alliance, AllianceSite, Dataset, JointQuestion, JointRun, Run
from training.notices import notify_silence
from training.services.runs import run_cancel

logger = logging.getLogger(__name__)

#: Fields of a schema that describe file formats and may differ between sites.
_OF_FILES = ("delimiter", "header", "comment", "decimal", "one_record")
#: How long a site tries to notify its hub that it has left.
_PARTING = timedelta(days=30)


# --- At the hub -----------------------------------------------------------------------------------------------------


@transaction.atomic
def alliance_create(
    *,
    study: Study,
    name: str,
    sites: Sequence[str],
    schema_of: Dataset,
    acting_user: AbstractBaseUser,
    public: Dataset | None = None,
    colluding: int = 1,
) -> tuple[Alliance, dict[str, str]]:
    """Found an alliance at its hub.

    Args:
        study: The hub's study, which needs no participants.
        sites: Names of the sites, as shown to holders.
        schema_of: A dataset of the study with the schema common to all sites.
        public: The public points to ask about, if any.
        colluding: Number of sites that may collude with the hub.

    Returns:
        The alliance, and each site's one-time code for registering.

    Raises:
        ValidationError: The study is a rehearsal, names are empty or repeated, or there are too few sites.
    """
    study = study_lock(study.pk)
    study_open_check(study)
    if study.rehearsal:
        raise ValidationError(_("A rehearsal asks no one for consent and has no sites. Create another study."))
    names = [each.strip() for each in sites]
    if not all(names) or len(set(names)) != len(names):
        raise ValidationError({"sites": _("Give each site a different name.")})
    if colluding < 0 or len(names) < colluding + 2:
        text = _("If %(colluding)d of the sites may collude, at least %(least)d sites are needed in total.")
        raise ValidationError({"sites": text % {"colluding": colluding, "least": colluding + 2}})
    terms = {
        "hub": study.controller,
        "purpose": study.purpose,
        "schema": schema_of.schema,
        "public": None if public is None else {"digest": points_digest(public), "rows": public.rows},
        "levels": list(Level.values),
        "modes": ["together", "separate"],
        "protocol": DOMAIN,
    }
    alliance = Alliance(study=study, name=name.strip(), colluding=colluding, terms=terms)
    alliance.full_clean(exclude=["key"])
    with changes_recorded([alliance], acting_user=acting_user):
        alliance.save()
    codes = {each: secrets.token_urlsafe(24) for each in names}
    AllianceSite.objects.bulk_create(
        AllianceSite(alliance=alliance, name=each, code_digest=code_digest(code)) for each, code in codes.items()
    )
    logger.info("User %s created the alliance %s.", acting_user.pk, alliance.pk)
    return alliance, codes


def code_owner(alliance: Alliance, code: str) -> AllianceSite:
    """Return the site to which a code was issued. Raises Refused."""
    site = AllianceSite.objects.filter(alliance=alliance, code_digest=code_digest(code)).first()
    if site is None:
        raise Refused(gettext_noop("This code is not valid in the alliance. Ask the hub for a new invitation."))
    return site


@transaction.atomic
def site_register(*, alliance: Alliance, code: str, key: str) -> AllianceSite:
    """Store a site's public key, which the site has sent with its code; sending the same key again has no effect.

    A key that would replace another one is pending until an operator of the hub confirms it.

    Raises:
        Refused: The code is unknown, another key was registered with it, or the key is invalid.
    """
    study_lock(alliance.study_id)
    site = locked(code_owner(locked(alliance), code))
    try:
        if len(bytes.fromhex(key)) != 32:
            raise ValueError
    except ValueError as error:
        raise Refused(gettext_noop("The key is not a public Ed25519 key.")) from error
    if alliance.renewal.get("site") == site.name or site.public_key not in ("", key):
        key_register(alliance, site, key)
        return site
    if alliance.is_signed and not site.public_key:
        raise Refused(gettext_noop("The alliance was signed without this site."))
    site.public_key, site.last_contact = key, timezone.now()
    site.save(update_fields=["public_key", "last_contact"])
    return site


@transaction.atomic
def alliance_sign(*, alliance: Alliance, acting_user: AbstractBaseUser) -> Alliance:
    """Sign an alliance at its hub after all sites have registered. Signing again has no effect.

    Raises:
        ValidationError: A site has not registered yet.
    """
    study_lock(alliance.study_id)
    alliance = Alliance.objects.select_related("study").get(pk=alliance.pk)
    if alliance.is_signed:
        return alliance
    sites = {site.name: site.public_key for site in alliance.sites.all()}
    if missing := sorted(name for name, key in sites.items() if not key):
        raise ValidationError(_("These sites have not registered yet: %(sites)s.") % {"sites": ", ".join(missing)})
    key = identity(alliance)
    document = AllianceDocument(
        name=alliance.name,
        terms=digest_of(document_text(alliance.terms)),
        colluding=alliance.colluding,
        hub=public_key(key),
        sites=sites,
    )
    alliance.content, alliance.signature = document.content().decode(), sign(document, key).signature.hex()
    with changes_recorded([alliance], acting_user=acting_user):
        alliance.save(update_fields=["content", "signature"])
    return alliance


@transaction.atomic
def people_of_sites(study: Study, schema: dict[str, Any]) -> Dataset:
    """Return the private dataset for a hub's runs; it has no rows because records stay at the sites."""
    study = study_lock(study.pk)
    known = Dataset.objects.filter(
        study=study, kind=Dataset.Kind.PRIVATE, provenance=EMPTY, removed_at=None, schema=schema
    )
    if (found := known.first()) is not None:
        return found
    record = schema_from_json(schema)
    nobody = np.empty(0, np.int64)
    artifact, digest = records_store({"x": np.empty((0, *record.shape), record.dtype), "y": nobody, "holder": nobody})
    number = Dataset.objects.filter(study=study, provenance=EMPTY).count() + 1
    dataset = Dataset(
        study=study,
        name=f"records at sites {number}",
        kind=Dataset.Kind.PRIVATE,
        schema=schema,
        rows=0,
        most_records=settings.MOST_RECORDS,
        seen_classes=[],
        provenance=EMPTY,
        artifact=artifact,
        digest=digest,
    )
    with changes_recorded([dataset], acting_user=None):
        dataset.save()
    return dataset


def private_datasets(study: Study) -> QuerySet[Dataset]:
    """Return private datasets of a study's own people, even if they no longer contain records."""
    return Dataset.objects.filter(study=study, kind=Dataset.Kind.PRIVATE, removed_at=None).exclude(provenance=EMPTY)


#: Provenance by which `people_of_sites` recognises the dataset that it returns.
EMPTY = gettext_noop("The records of a joint run stay at its sites, so the hub has none.")


# --- At a site ------------------------------------------------------------------------------------------------------


def alliance_connect(
    *, study: Study, invitation: str, acting_user: AbstractBaseUser, certificate: str = ""
) -> Alliance:
    """Register a study at the hub that invited it. This neither joins the alliance nor informs people.

    Args:
        study: The site's study.
        invitation: The invitation, a single line.
        certificate: PEM of the only certificate to accept: the hub's, or that of the authority that signed the hub's.

    Raises:
        ValidationError: The invitation is invalid, or the hub is unreachable or refuses.
    """
    study_open_check(study)
    if study.rehearsal:
        raise ValidationError(_("A rehearsal asks no one for consent and cannot join an alliance."))
    address, known, code = invitation_read(invitation)
    alliance = Alliance(
        study=study, key=known, name="…", own_name="…", address=address, certificate=certificate.strip()
    )
    try:
        hub = Hub(alliance)
        named = hub.post("name", {"code": code}, signed=False)
        alliance.own_name = str(named["site"])[:100]
        answer = hub.post("register", {"code": code, "key": public_key(identity(alliance))}, signed=False)
    except Unreachable as error:
        raise ValidationError(str(error)) from error
    except (KeyError, ValueError) as error:
        raise ValidationError({"certificate": _("The certificate cannot be read. Enter it as PEM.")}) from error
    with transaction.atomic():
        study_open_check(study_lock(study.pk))
        if Alliance.objects.filter(study=study, key=known).exists():
            raise ValidationError(_("This study has already registered with this alliance."))
        alliance.name, alliance.terms = str(answer["name"])[:100], answer["terms"]
        alliance.colluding, alliance.last_contact = int(answer["colluding"]), timezone.now()
        alliance.full_clean(exclude=["key", "address"])
        with changes_recorded([alliance], acting_user=acting_user):
            alliance.save()
    logger.info("User %s registered with the alliance %s.", acting_user.pk, alliance.pk)
    return alliance


def schema_differences(alliance: Alliance) -> list[Sentence]:
    """Return messages about differences between the alliance's schema and this study's private dataset."""
    datasets = private_datasets(alliance.study)
    if not datasets:
        return [Sentence(gettext_noop("This study has no private dataset yet. Import one."))]
    differences = [_differences(alliance.terms["schema"], dataset.schema) for dataset in datasets]
    return [] if any(not each for each in differences) else min(differences, key=len)


def _differences(theirs: dict[str, Any], ours: dict[str, Any]) -> list[Sentence]:
    if encodes_alike(theirs, ours):
        return []
    found = []
    columns = "columns" if "columns" in theirs or "columns" in ours else ""
    if columns:
        there = {each["name"]: each for each in theirs.get(columns, [])}
        here = {each["name"]: each for each in ours.get(columns, [])}
        for name in [*there, *(each for each in here if each not in there)]:
            if name not in here:
                found.append(Sentence(gettext_noop("This study has no column “%(name)s”."), name=name))
            elif name not in there:
                found.append(Sentence(gettext_noop("The alliance has no column “%(name)s”."), name=name))
            else:
                found += [
                    Sentence(
                        gettext_noop(
                            "In the column “%(name)s”, %(what)s is %(ours)s in this study and %(theirs)s in "
                            "the alliance."
                        ),
                        **{"name": name, "what": what, "ours": str(here[name].get(what)), "theirs": str(value)},
                    )
                    for what, value in there[name].items()
                    if here[name].get(what) != value
                ]
        if not found and list(there) != list(here):
            found.append(Sentence(gettext_noop("The columns are in a different order in this study.")))
    for what in sorted({*theirs, *ours} - {"columns", *_OF_FILES}):
        if theirs.get(what) != ours.get(what):
            text = gettext_noop("For records, “%(what)s” is %(ours)s in this study but %(theirs)s in the alliance.")
            found.append(Sentence(text, what=what, ours=str(ours.get(what)), theirs=str(theirs.get(what))))
    return found


@transaction.atomic
def alliance_add_to_form(*, alliance: Alliance, acting_user: AbstractBaseUser) -> ConsentFormDraft | None:
    """Add a signed alliance to the next version of the consent form.

    If the study has no consent form yet, this changes the facts for its first version. Otherwise it changes the draft
    of the next version, keeping all other changes. The draft is proposed and approved like any other, and people are
    asked again.

    Raises:
        ValidationError: The alliance is not signed, or is signed incorrectly.
    """
    study = study_lock(alliance.study_id)
    if locked(alliance).left_at is not None:
        raise ValidationError(_("This site has left the alliance. Ask the hub to create a new alliance."))
    try:
        alliance_verify(alliance)
    except Refused as error:
        raise refusal(error) from error
    facts = facts_of_alliance(alliance)
    latest = consent_form_in_force(study)
    if latest is None:
        study_update(study=study, acting_user=acting_user, alliance=facts)
        return None
    begun = ConsentFormDraft.objects.filter(study=study).first()
    texts, facts_of_form = (begun.texts, draft_facts(begun)) if begun else (latest.texts, latest.facts)
    facts_of_form = {**facts_of_form, "alliance": facts}
    return consent_form_draft_save(study=study, acting_user=acting_user, texts=texts, facts=facts_of_form)


@transaction.atomic
def alliance_join(*, alliance: Alliance, acting_user: AbstractBaseUser) -> Alliance:
    """Join an alliance; the site's signature is sent at the next contact. Joining again has no effect.

    Raises:
        ValidationError: The consent form in force does not describe the alliance, the schema of the records differs, or
            the site has left.
    """
    study_lock(alliance.study_id)
    alliance = Alliance.objects.select_related("study").get(pk=alliance.pk)
    if alliance.left_at is not None:
        raise ValidationError(_("This site has left the alliance. Ask the hub to create a new alliance."))
    if alliance.joined_at is not None:
        return alliance
    if not form_describes(alliance):
        raise ValidationError(
            _(
                "The consent form in force does not mention this alliance. Mention it in the next version, and join "
                "once a second person has published that version."
            )
        )
    if differences := schema_differences(alliance):
        raise ValidationError([str(each) for each in differences])
    alliance.joined_at = timezone.now()
    with changes_recorded([alliance], acting_user=acting_user):
        alliance.save(update_fields=["joined_at"])
    send("alliance_contact", alliance.pk)
    return alliance


@transaction.atomic
def alliance_leave(*, alliance: Alliance, acting_user: AbstractBaseUser | None) -> Alliance:
    """Leave an alliance permanently or, at its hub, end it. Its runs end here, and answers already given are kept.

    ``acting_user`` is None if the retention period of the study's records has ended.
    """
    study_lock(alliance.study_id)
    alliance = Alliance.objects.select_related("study").get(pk=alliance.pk)
    if alliance.left_at is not None:
        return alliance
    ended = gettext_noop("The alliance of this run has ended.")
    left = gettext_noop("This study has left the run's alliance.")
    for run in alliance.runs.exclude(status__in=Run.ENDED):
        run_cancel(run=run, acting_user=acting_user, message=ended if alliance.is_hub else left)
    alliance.left_at, alliance.proposals = timezone.now(), {}
    with changes_recorded([alliance], acting_user=acting_user):
        alliance.save(update_fields=["left_at", "proposals"])
    if not alliance.is_hub:
        send("alliance_contact", alliance.pk)
    return alliance


def alliance_contact(pk: str | int) -> None:
    """Exchange messages with an alliance's hub, for example that this site has left. Log an error if this fails."""
    alliance = Alliance.objects.select_related("study").get(pk=pk)
    try:
        exchange(alliance)
    except (Unreachable, Refused) as error:
        logger.warning("The hub of alliance %s could not be reached: %s", alliance.pk, error)


def proposal_document(alliance: Alliance, number: str) -> dict[str, Any]:
    """Return the hub's description of a proposed run: its parameters, share, plan, participants and mode."""
    proposal = alliance.proposals[number]
    facts = json.loads(proposal["told"])
    if proposal["content"]:
        document = RunDocument.read(proposal["content"].encode())
        facts |= {"mode": JointRun.Mode(document.mode).label, "sites": list(document.participants)}
        facts["method_label"] = Run.Method(facts["method"]).label
    return facts


def alliances_contact() -> None:
    """Exchange messages with the hubs of all alliances here, and wake runs whose hubs sent something new.

    A hub that does not answer does not delay the others; the page of its alliance shows the reason and for how long it
    has not answered. A hub that a run has just asked is skipped. After this site has left an alliance, it tries to
    notify the hub for at most a month.
    """
    now = timezone.now()
    heard = now - timedelta(seconds=settings.SITES_INTERVAL / 2)
    untold = Q(left_at__gt=now - _PARTING, last_contact__lt=F("left_at"))
    _hubs_ask(Alliance.objects.exclude(last_contact__gt=heard).filter(Q(left_at=None) | untold))


def former_hubs_ask() -> None:
    """Ask the hubs of ended alliances whether they have withdrawn models or tables that are still offered here."""
    model = Q(runs__students__isnull=False, runs__students__withdrawn_at=None)
    table = Q(runs__result__isnull=False, runs__result__withdrawn_at=None)
    _hubs_ask(Alliance.objects.filter(model | table, left_at__isnull=False).distinct())


def _hubs_ask(alliances: QuerySet[Alliance]) -> None:
    for alliance in alliances.exclude(own_name="").select_related("study"):
        if Hub(alliance).seconds_left:
            continue
        try:
            is_new = exchange(alliance)
        except (Unreachable, Refused) as error:
            problem = error.sentence.to_json()
            Alliance.objects.filter(pk=alliance.pk).update(problem=problem)
            logger.warning("The hub of alliance %s could not be reached: %s", alliance.pk, error)
            continue
        if is_new:
            for pk in alliance.runs.filter(status__in=Run.ACTIVE).values_list("pk", flat=True):
                send("run_advance", pk)


def notify_silences() -> None:
    """Notify operators once about sites that delay an open question, and once about a hub that does not answer."""
    before = timezone.now() - timedelta(seconds=settings.SITES_SILENCE)
    open_questions = JointQuestion.objects.filter(closed_at=None, moved_at__lt=before, silence_is_known=False)
    for question in open_questions.filter(joint__run__alliance__own_name="").select_related(
        "joint__run__alliance__study"
    ):
        with transaction.atomic():
            if JointQuestion.objects.filter(pk=question.pk, silence_is_known=False).update(silence_is_known=True):
                notify_silence(question.joint.alliance, question.pending_sites)
    silent = Alliance.objects.exclude(own_name="").filter(left_at=None, last_contact__lt=before, silence_is_known=False)
    for alliance in silent.filter(runs__status__in=Run.ACTIVE).select_related("study").distinct():
        with transaction.atomic():
            if Alliance.objects.filter(pk=alliance.pk, silence_is_known=False).update(silence_is_known=True):
                notify_silence(alliance, [alliance.terms["hub"]])
