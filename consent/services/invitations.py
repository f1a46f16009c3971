"""Invitations: links that let data holders decide, and view, change and withdraw decisions, without an account.

A code is shown once, to the operator who created it. It has 80 random bits, which is short enough to type from paper.
The database stores its HMAC under the installation's signing key, so a copy of the database does not help in guessing
codes; guessing on the site is limited (docs/threat-model.md, Guessing). Earlier codes have 140 random bits and a plain
SHA-256, and keep working. Trying codes does not show whether they are wrong, revoked or replaced; only the check
letters reveal a mistyped code.
"""

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from allauth.account.models import EmailAddress
from allauth.mfa.utils import is_mfa_enabled
from django.conf import settings
from django.contrib.auth import authenticate, get_user_model
from django.contrib.auth.models import AbstractBaseUser, User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from common.identities import spelling
from common.keys import Purpose, digest, keys_of
from common.models import locked
from common.throttle import Attempt, Counter, attempt_begin, counters_check, keyed_hash
from consent.documents.codes import GROUP, code_in_groups, code_new, code_normalise
from consent.models import Circumstance, DataHolder, Invitation, LinkReissue, Study, study_lock
from consent.people.circumstances import Answering, answering_for, circumstances_ended, circumstances_last
from consent.people.pseudonyms import Invited, holder_named
from consent.services.changes import changes_recorded
from consent.services.holders import (
    circumstance_record,
    handover_record,
    holder_link,
    holders_register,
    invitations_end,
)
from consent.services.mail import confirmed_address, holder_mail
from consent.services.studies import study_asks_check

#: Number of groups (each with 20 random bits and a check letter) in a new code, and in codes that were issued earlier.
GROUPS, EARLIER_GROUPS = 4, 7
#: Message shown when an account has replaced a link.
ACCOUNT_SET_UP = gettext_lazy("Your account is set up. Sign in from now on, because the link no longer works.")


@dataclass(frozen=True)
class IssuedInvitation:
    """A new invitation with its code, which is stored nowhere else; ``name`` is the pseudonym as originally written."""

    invitation: Invitation
    code: str
    language: str = ""
    address: str = ""
    name: str = ""

    @property
    def pseudonym(self) -> str:
        # If a person's records were erased, only the pseudonym as written in the list is known.
        return self.name or (self.invitation.holder.pseudonym if self.invitation.holder else "")

    @cached_property
    def answering(self) -> Answering:
        """Role of the person who answers, as recorded for the holder; for an open invitation, the holder's own role."""
        return answering_for(self.invitation.holder) if self.invitation.holder else Answering()

    @property
    def link(self) -> str:
        return settings.SITE_URL.rstrip("/") + reverse("open_link", args=[self.code])

    @property
    def spelled(self) -> str:
        """The code in groups, for typing from paper."""
        return code_in_groups(self.code)


def _code() -> str:
    """Return a new code from the operating system, in lower-case letters for a link."""
    return code_new(GROUPS).lower()


def groups_of(code: str) -> int:
    """Return the number of groups that a typed code should have, judging by its length."""
    typed = len(code_normalise(code))
    return min((GROUPS, EARLIER_GROUPS), key=lambda groups: abs(groups * GROUP - typed))


def code_hashes(code: str) -> list[str]:
    """Return the hashes under which a code may be stored, however it is spelled; the hash for new codes comes first.

    >>> code_hashes("ABCDE fgh1j") == code_hashes("abcde-fghlj")
    True
    """
    typed = code_normalise(code)
    if len(typed) == EARLIER_GROUPS * GROUP:
        return [hashlib.sha256(typed.encode()).hexdigest()]
    return [digest("consent.invitations", typed, key) for key in keys_of(Purpose.SIGNING)]


def uninvited_holders(study: Study) -> QuerySet[DataHolder]:
    """Return holders of a study who were never invited, have no account and have not decided on paper.

    People who died, who can no longer decide, or whose records were erased are excluded.
    """
    return _undecided(study).filter(invitations=None)


def unanswered_holders(study: Study, invited_before: datetime) -> QuerySet[DataHolder]:
    """Return holders without an account or decision whose valid invitation is older than a given time or was returned.

    People who died, who can no longer decide, or whose records were erased are excluded.
    """
    asked = Invitation.objects.filter(
        Q(created_at__lt=invited_before) | Q(returned_at__isnull=False), holder=OuterRef("pk"), revoked_at=None
    )
    return _undecided(study).filter(Exists(asked))


def _undecided(study: Study) -> QuerySet[DataHolder]:
    cannot = circumstances_last(study).filter(kind__in=(Circumstance.Kind.DIED, Circumstance.Kind.INCAPABLE))
    people = DataHolder.objects.filter(study=study, user=None, erased_at=None, consent_events=None)
    return people.exclude(pk__in=cannot.values("holder")).order_by("pseudonym")


@transaction.atomic
def invitations_create(
    *,
    study: Study,
    acting_user: AbstractBaseUser | None,
    pseudonyms: Iterable[str | Invited] = (),
    open_places: int = 0,
    replace: bool = False,
) -> list[IssuedInvitation]:
    """Issue invitations for given pseudonyms, and open invitations for new holders.

    Holders who can already decide, with an account or a valid invitation, are omitted. If someone else now answers for
    a person, this is recorded, and the previous answerer can no longer decide.

    Args:
        acting_user: the operator; None from the command line.
        pseudonyms: holders to invite, with the role of the person who answers if it is to be recorded; unknown holders
            are registered.
        open_places: the number of open invitations.
        replace: issue new codes to holders with a valid invitation, and revoke the earlier ones.

    Returns:
        The invitations with their codes, which are not stored.

    Raises:
        ValidationError: a pseudonym is invalid, the study is a rehearsal, or a guardian or proxy cannot be recorded
            this way.
    """
    study = study_lock(study.pk)
    study_asks_check(study)
    people = [each if isinstance(each, Invited) else Invited(each.strip()) for each in pseudonyms]
    wanted = list(dict.fromkeys(each.pseudonym for each in people if each.pseudonym))
    ids = holders_register(study=study, pseudonyms=wanted)
    for over in circumstances_ended(timezone.now()).filter(study=study):
        handover_record(over.holder)
    for each in people:
        if each.answers:
            _answers_record(study, each, acting_user)
    valid = Invitation.objects.filter(study=study, revoked_at=None, holder__isnull=False)
    invited = set() if replace else set(valid.values_list("holder_id", flat=True))
    # An account does not replace a link until its address is confirmed.
    confirmed = EmailAddress.objects.filter(user=OuterRef("user"), verified=True, user__is_active=True)
    has_account = Exists(confirmed) if replace else Q(user__isnull=False)
    without_account = DataHolder.objects.filter(~has_account, study=study).exclude(pk__in=invited)
    by_id = {holder.pk: holder for holder in without_account.iterator(chunk_size=10_000)}
    written = {each.pseudonym: each for each in people}
    names = {ids[name]: name for name in wanted}  # one for each person, even if listed several times
    known = [(by_id[pk], written[name]) for pk, name in names.items() if pk in by_id]
    places: list[tuple[DataHolder | None, Invited]] = [*known, *[(None, Invited(""))] * open_places]
    now = timezone.now()
    if replace:
        invitations_end(holders=[holder.pk for holder, _person in known], acting_user=acting_user)
    issued = []
    for holder, person in places:
        code = _code()
        invitation = Invitation(
            study=study,
            holder=holder,
            code_hash=code_hashes(code)[0],
            created_by_id=acting_user.pk if acting_user else None,
            created_at=now,
        )
        issued.append(IssuedInvitation(invitation, code, person.language, person.address, person.pseudonym))
    added = [each.invitation for each in issued]
    with changes_recorded(added, acting_user=acting_user):
        Invitation.objects.bulk_create(added, batch_size=1000)
    return issued


def _answers_record(study: Study, person: Invited, acting_user: AbstractBaseUser | None) -> None:
    """Record who answers for an invited person; record that they answer themselves only if someone else did before."""
    holder = holder_named(study, person.pseudonym)
    known = Circumstance.objects.filter(holder=holder).exists()
    if person.answers == Circumstance.Kind.PERSON and not known:
        return
    try:
        circumstance_record(
            study=study,
            pseudonym=person.pseudonym,
            kind=person.answers,
            until=person.until,
            reason="invitation",
            acting_user=acting_user,
        )
    except ValidationError as error:
        raise ValidationError(f"{person.pseudonym}: {' '.join(error.messages)}") from error


def invitations_with(study: Study, codes: Sequence[str]) -> dict[str, IssuedInvitation]:
    """Return the valid invitations of a study by code, omitting codes that do not work in this study."""
    hashes = {each: code for code in codes for each in code_hashes(code)}
    invitations = Invitation.objects.filter(study=study, revoked_at=None, code_hash__in=hashes).select_related("holder")
    return {hashes[row.code_hash]: IssuedInvitation(row, hashes[row.code_hash]) for row in invitations}


@transaction.atomic
def invitation_revoke(*, invitation: Invitation, acting_user: AbstractBaseUser) -> None:
    """Revoke an invitation; sessions opened with it end at their next request."""
    with changes_recorded([invitation], acting_user=acting_user):
        Invitation.objects.filter(pk=invitation.pk, revoked_at=None).update(
            revoked_at=timezone.now(), revoked_by=acting_user.pk
        )


@transaction.atomic
def letter_returned(*, holder: DataHolder, acting_user: AbstractBaseUser) -> None:
    """Record that the letter with a holder's valid link came back as undeliverable. Repeating this has no effect.

    The letter is due again, and the new letter will have a new link that replaces this one.

    Raises:
        ValidationError: The holder has no valid link, or has already opened it.
    """
    study_lock(holder.study_id)
    invitation = Invitation.objects.filter(holder=holder, revoked_at=None).first()
    if invitation is None or invitation.last_used_at is not None:
        raise ValidationError(_("This person has no unopened letter: their link was opened, replaced or revoked."))
    if invitation.returned_at is None:
        with changes_recorded([invitation], acting_user=acting_user):
            Invitation.objects.filter(pk=invitation.pk).update(returned_at=timezone.now(), returned_by=acting_user.pk)


def _counter(address: str) -> Counter:
    """Return the counter of failed attempts from an address. It also delays correct codes, to make guessing harder."""
    window = timedelta(seconds=settings.INVITATION_WAIT)
    return Counter(keyed_hash("invitation", address), settings.INVITATION_TRIES, window)


def try_check(*, address: str) -> None:
    """Check whether this network address may try another code.

    Raises:
        TooManyTriesError: too many attempts failed.
    """
    counters_check([_counter(address)])


def try_begin(*, address: str) -> Attempt:
    """Record an attempt from this network address; it is treated as failed until it is deleted.

    Raises:
        TooManyTriesError: too many attempts failed.
    """
    return attempt_begin([_counter(address)])


def invitation_open(*, code: str, address: str) -> Invitation | None:
    """Return the invitation with this code, bound to its holder; None if the code does not work.

    An open invitation of a closed study is not bound to a holder.

    Raises:
        TooManyTriesError: too many codes from this network address were wrong; this code was not checked.
    """
    attempt = try_begin(address=address)
    invitation = _invitation_bind(code)
    if invitation is not None:
        attempt.forget()
    return invitation


@transaction.atomic
def _invitation_bind(code: str) -> Invitation | None:
    """Return the valid invitation with this code, and bind it to a holder."""
    valid = Invitation.objects.select_related("holder", "study").filter(revoked_at=None)
    invitation = valid.filter(code_hash__in=code_hashes(code)).first()
    if invitation is None:
        return None
    over = circumstances_ended(timezone.now()).filter(holder=invitation.holder_id).first()
    if over is not None:
        handover_record(over.holder)
        return None
    if invitation.holder is None and invitation.study.is_closed:
        return invitation
    if invitation.holder is None:
        study_lock(invitation.study_id)
        invitation = valid.get(pk=invitation.pk)  # someone may have opened the invitation at the same time
        if invitation.holder is None:
            pseudonym = f"new-{secrets.token_hex(6)}"
            invitation.holder = DataHolder.objects.create(study=invitation.study, pseudonym=pseudonym)
            with changes_recorded([invitation], acting_user=None):
                invitation.save(update_fields=["holder"])
    invitation.last_used_at = timezone.now()
    invitation.save(update_fields=["last_used_at"])
    return invitation


def account_take(*, holder: DataHolder, email: str, password: str, request: HttpRequest) -> User:
    """Give a holder an account, either a new one or their account from another study.

    The invitation keeps working until the account has a confirmed address, so they can repeat this step with another
    address or password. An account with a second factor is only checked here; call :func:`account_join` after the
    second factor was given.

    Args:
        email: the address, which is also the user name.
        password: the password; for an existing account, the current one.
        request: the request, used to limit attempts to enter an existing account's password, as for any sign-in.

    Raises:
        ValidationError: the password is weak, or wrong for the existing account, or the account already takes part in
            the study.
        TooManyTriesError: too many wrong passwords were entered.
    """
    email = email.strip().lower()
    users, pending = get_user_model(), _pending_account(holder)
    known = users.objects.filter(username__iexact=email).exclude(pk__in=[pending.pk] if pending else []).exists()
    if known:
        # Before the transaction, so that a failed attempt stays recorded.
        account = authenticate(request, username=email, password=password)
        if account is None:
            raise ValidationError(
                _("The email address and the password do not match. If you have an account, use its password.")
            )
        user = account
        if is_mfa_enabled(user):
            _account_check(holder, user)
            return user
    else:
        user = pending or users()
        user.username = user.email = email
        validate_password(password, user)
        user.set_password(password)
    with transaction.atomic():
        if not known:
            user.save()
            EmailAddress.objects.filter(user=user).exclude(email=email).delete()
            EmailAddress.objects.get_or_create(user=user, email=email, defaults={"primary": True})
        _account_link(holder, user, pending)
    return user


@transaction.atomic
def account_join(*, holder_id: int, user: User) -> bool:
    """Link a holder to the account just used to sign in with a second factor; return whether that was possible.

    This is impossible if the invitation has been revoked, or if the account is already linked to other records.
    """
    holder = DataHolder.objects.filter(pk=holder_id, invitations__revoked_at=None, invitations__isnull=False).first()
    if holder is None:
        return False
    try:
        _account_link(holder, user, _pending_account(holder))
    except ValidationError:
        return False
    return True


def _account_link(holder: DataHolder, user: User, pending: User | None) -> None:
    """Link a holder to an account, replacing the ``pending`` account. Raises ValidationError."""
    _account_check(holder, user)
    theirs = DataHolder.objects.filter(user=user).values_list("study", flat=True)
    for study_id in sorted({holder.study_id, *theirs}):  # in the same order for everyone, to avoid deadlocks
        study_lock(study_id)
    before = holder.user_id
    if locked(holder).user_id != before:
        raise ValidationError(_("Another account was linked to these records a moment ago. Sign in with that account."))
    holder_link(holder=holder, user=user)
    if pending and pending != user:
        pending.delete()
    if confirmed_address(user.pk):
        account_invitations_end(user=user)


def _account_check(holder: DataHolder, user: User) -> None:
    if DataHolder.objects.filter(study=holder.study_id, user=user).exclude(pk=holder.pk).exists():
        raise ValidationError(
            _("This account already decides for other records in this study. Use a different address.")
        )


def _pending_account(holder: DataHolder) -> User | None:
    """Return the account created with the holder's invitation whose address is not yet confirmed, or None."""
    user = holder.user
    if user is None or confirmed_address(user.pk) or user.is_staff or user.is_superuser:
        return None
    only_this = user.holdings.count() == 1 and not user.memberships.exists()
    return user if only_this and EmailAddress.objects.filter(user=user).exists() else None


@transaction.atomic
def account_invitations_end(*, user: User) -> None:
    """End the invitations of all holders for whom the account decides, because the account is now known to work."""
    for pk in DataHolder.objects.filter(user=user).order_by("study").values_list("pk", flat=True):
        invitations_end(holders=[pk], acting_user=None, account=user)


@transaction.atomic
def link_reissue(*, study: Study, pseudonym: str, reason: str, acting_user: AbstractBaseUser) -> IssuedInvitation:
    """Issue a new link to a holder's decisions for a person who has lost theirs, and record this.

    Earlier links, and visits through them, end. The holder's account, if any, still works and gets an email.

    Args:
        reason: why the link is needed and how the person's identity was checked; kept with the record.

    Raises:
        ValidationError: no holder in the study has this pseudonym, or the reason is empty.
    """
    study_lock(study.pk)
    holder = holder_named(study, pseudonym)
    handover_record(holder)
    holder.refresh_from_db()
    now = timezone.now()
    record = LinkReissue(study=study, holder=holder, reason=reason.strip(), issued_by_id=acting_user.pk, issued_at=now)
    LinkReissue.append([record])
    invitations_end(holders=[holder.pk], acting_user=acting_user)
    holder_mail("new_link", holder)
    code = _code()
    invitation = Invitation(
        study=study, holder=holder, code_hash=code_hashes(code)[0], created_by_id=acting_user.pk, created_at=now
    )
    with changes_recorded([invitation], acting_user=acting_user):
        invitation.save()
    return IssuedInvitation(invitation, code, name=spelling(pseudonym))
