"""Create the tables of studies, of the people who take part in them, and of all decisions, as chains."""

import uuid

from django.conf import settings
from django.db import migrations, models
from django.db.models import CASCADE, PROTECT, SET_NULL, F, Q

from common.migrations._parts import CHAINED, ID, actor, check, foreign, moment, unique
from consent.languages import first_language
from consent.models.addresses import new_key

USER = settings.AUTH_USER_MODEL
ROLES = ["operator", "steward", "committee", "chair", "auditor", "researcher"]
#: A user has at most one of each.
SEPARATE = {
    "a_user_operates_a_study_or_oversees_it": ("operator", "committee", "chair", "auditor"),
    "a_user_handles_records_or_oversees_a_study": ("steward", "committee", "chair", "auditor"),
    "a_user_sees_sizes_or_researches": ("researcher", "steward", "auditor"),
}
HEAD = (
    ("chain", models.CharField(max_length=100)),
    ("sequence", models.PositiveBigIntegerField(default=0)),
    ("hash", models.CharField(default="0" * 64, max_length=64)),
    ("signature", models.CharField(blank=True, max_length=100)),
)
CHANGE = (
    foreign("study", "consent.study"),
    ("model", models.CharField(max_length=50)),
    ("row", models.CharField(max_length=36)),
    ("before", models.JSONField(blank=True, null=True)),
    ("after", models.JSONField(blank=True, null=True)),
    actor("changed_by", blank=True, null=True),
    moment("changed_at"),
)
VALIDITY = (
    ("valid_months", models.PositiveSmallIntegerField(blank=True, null=True)),
    ("valid_until", models.DateField(blank=True, null=True)),
)


class Migration(migrations.Migration):
    initial = True

    dependencies = [migrations.swappable_dependency(USER)]

    operations = [
        migrations.CreateModel(
            "Study",
            [
                ID,
                ("slug", models.SlugField(unique=True)),
                ("title", models.CharField(max_length=200)),
                ("purpose", models.TextField()),
                ("controller", models.CharField(max_length=200)),
                ("controller_address", models.TextField(blank=True)),
                ("data_protection_officer", models.TextField(blank=True)),
                ("without_officer", models.BooleanField(default=False)),
                ("supervisory_authority", models.TextField(blank=True)),
                ("contact", models.EmailField(max_length=254)),
                ("contact_name", models.CharField(blank=True, max_length=200)),
                ("contact_telephone", models.CharField(blank=True, max_length=50)),
                ("contact_hours", models.CharField(blank=True, max_length=200)),
                ("data_categories", models.TextField(blank=True)),
                ("data_source", models.TextField(blank=True)),
                ("recipients", models.TextField(blank=True)),
                ("without_recipients", models.BooleanField(default=False)),
                ("retention", models.TextField(blank=True)),
                ("retention_until", models.DateField(blank=True, null=True)),
                ("after_withdrawal", models.CharField(default="asked", max_length=10)),
                ("lawful_basis", models.CharField(default="consent", max_length=20)),
                ("jurisdiction", models.CharField(blank=True, max_length=100)),
                ("after_death", models.CharField(default="ends", max_length=10)),
                ("after_incapacity", models.CharField(default="ends", max_length=10)),
                ("alliance", models.JSONField(blank=True, default=dict)),
                ("harm", models.TextField(blank=True, max_length=240)),
                ("quorum", models.PositiveSmallIntegerField(default=1)),
                ("mail_opening", models.TextField(blank=True, max_length=500)),
                ("languages", models.JSONField(default=first_language)),
                ("translations", models.JSONField(blank=True, default=dict)),
                ("delta", models.FloatField(default=1e-05)),
                ("rehearsal", models.BooleanField(default=False)),
                ("retain_votes", models.BooleanField(default=False)),
                ("closed_at", models.DateTimeField(blank=True, null=True)),
                ("expired_at", models.DateTimeField(blank=True, null=True)),
                moment("created_at"),
            ],
            options={
                "verbose_name": "study",
                "verbose_name_plural": "studies",
                "ordering": ["title"],
                "constraints": [
                    check("study_delta_is_small_and_positive", Q(delta__gte=1e-09, delta__lte=0.01)),
                    check(
                        "study_says_what_ends_a_consent",
                        Q(after_death__in=["ends", "stands"], after_incapacity__in=["ends", "stands"]),
                    ),
                    check("study_quorum_is_one_to_nine", Q(quorum__gte=1, quorum__lte=9)),
                ],
            },
        ),
        migrations.CreateModel(
            "ChainHead",
            [
                ID,
                *HEAD,
                foreign("study", "consent.study", CASCADE, related_name="chain_heads"),
            ],
            options={
                "verbose_name": "chain head",
                "verbose_name_plural": "chain heads",
                "ordering": ["study", "chain"],
                "constraints": [unique("a_chain_has_one_head", "study", "chain")],
            },
        ),
        migrations.CreateModel(
            "InstallationHead",
            [
                ID,
                *HEAD,
            ],
            options={
                "verbose_name": "head of a chain of the installation",
                "verbose_name_plural": "heads of the installation's chains",
                "constraints": [unique("a_chain_of_the_installation_has_one_head", "chain")],
            },
        ),
        migrations.CreateModel(
            "ConfigurationChange",
            [
                ID,
                *CHAINED,
                *CHANGE,
            ],
            options={
                "verbose_name": "configuration change",
                "verbose_name_plural": "configuration changes",
                "ordering": ["sequence"],
                "constraints": [unique("configurationchange_sequence_is_unique", "study", "sequence")],
            },
        ),
        migrations.CreateModel(
            "SealedChange",
            [
                ID,
                *CHAINED,
                *CHANGE,
            ],
            options={
                "verbose_name": "sealed change",
                "verbose_name_plural": "sealed changes",
                "ordering": ["sequence"],
                "indexes": [models.Index(name="sealed_change_of_row", fields=["study", "model", "row"])],
                "constraints": [unique("sealedchange_sequence_is_unique", "study", "sequence")],
            },
        ),
        migrations.CreateModel(
            "Membership",
            [
                ID,
                foreign("study", "consent.study", CASCADE, related_name="memberships"),
                foreign("user", USER, related_name="memberships"),
                ("role", models.CharField(max_length=20)),
                moment("created_at"),
            ],
            options={
                "verbose_name": "membership",
                "verbose_name_plural": "memberships",
                "ordering": ["study", "role", "user"],
                "constraints": [
                    unique("membership_is_given_once", "study", "user", "role"),
                    *(unique(name, "study", "user", condition=Q(role__in=roles)) for name, roles in SEPARATE.items()),
                    check(
                        "membership_role_is_known",
                        Q(role__in=ROLES),
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "RoleChange",
            [
                ID,
                *CHAINED,
                foreign("study", "consent.study", related_name="role_changes"),
                actor("user"),
                ("role", models.CharField(max_length=20)),
                ("kind", models.CharField(max_length=10)),
                actor("changed_by", null=True),
                moment("changed_at"),
                actor("proposed_by", null=True),
            ],
            options={
                "verbose_name": "role change",
                "verbose_name_plural": "role changes",
                "ordering": ["sequence"],
                "constraints": [
                    unique("rolechange_sequence_is_unique", "study", "sequence"),
                    check(
                        "role_change_role_is_known",
                        Q(role__in=ROLES),
                    ),
                    check(
                        "role_change_kind_is_known",
                        Q(kind__in=["given", "taken", "held", "to_give", "to_take", "dropped"]),
                    ),
                    check(
                        "role_change_is_confirmed_by_a_second_person",
                        Q(proposed_by=None) | ~Q(changed_by=F("proposed_by")),
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "ConsentFormProposal",
            [
                ID,
                *CHAINED,
                *VALIDITY,
                foreign("study", "consent.study", related_name="consent_form_proposals"),
                ("follows", models.PositiveIntegerField()),
                ("texts", models.JSONField()),
                ("facts", models.JSONField()),
                ("digest", models.CharField(max_length=64)),
                ("renewal", models.CharField(max_length=10)),
                ("objection_until", models.DateTimeField(blank=True, null=True)),
                ("answer_by", models.DateField(blank=True, null=True)),
                actor("proposed_by"),
                moment("proposed_at"),
            ],
            options={
                "verbose_name": "proposed consent form",
                "verbose_name_plural": "proposed consent forms",
                "ordering": ["sequence"],
                "constraints": [
                    unique("consentformproposal_sequence_is_unique", "study", "sequence"),
                    check("consent_form_proposal_renewal_is_known", Q(renewal__in=["not_asked", "asked", "required"])),
                    check(
                        "consent_form_correction_asks_nobody_again", Q(objection_until=None) | Q(renewal="not_asked")
                    ),
                    check("consent_form_proposal_has_one_validity", Q(valid_months=None) | Q(valid_until=None)),
                ],
            },
        ),
        migrations.CreateModel(
            "ConsentForm",
            [
                ID,
                *CHAINED,
                *VALIDITY,
                foreign("study", "consent.study", related_name="consent_forms"),
                ("version", models.PositiveIntegerField()),
                ("texts", models.JSONField()),
                ("facts", models.JSONField()),
                ("digest", models.CharField(max_length=64)),
                ("renewal", models.CharField(default="not_asked", max_length=10)),
                ("objection_until", models.DateTimeField(blank=True, null=True)),
                ("proposal", models.OneToOneField("consent.consentformproposal", PROTECT, related_name="form")),
                actor("proposed_by"),
                actor("published_by", blank=True, null=True),
                moment("published_at"),
            ],
            options={
                "verbose_name": "consent form version",
                "verbose_name_plural": "consent form versions",
                "ordering": ["-version"],
                "constraints": [
                    unique("consent_form_version_is_unique", "study", "version"),
                    unique("consentform_sequence_is_unique", "study", "sequence"),
                    check("consent_form_renewal_is_known", Q(renewal__in=["not_asked", "asked", "required"])),
                    check("consent_form_has_one_validity", Q(valid_months=None) | Q(valid_until=None)),
                    check(
                        "consent_form_is_approved_by_a_second_person",
                        (Q(objection_until=None, published_by__isnull=False) & ~Q(published_by=F("proposed_by")))
                        | Q(objection_until__isnull=False, published_by=None, renewal="not_asked"),
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "ConsentFormDraft",
            [
                ID,
                ("study", models.OneToOneField("consent.study", CASCADE, related_name="consent_form_draft")),
                ("texts", models.JSONField(default=dict)),
                ("facts", models.JSONField(blank=True, null=True)),
                actor("saved_by"),
                moment("saved_at"),
            ],
            options={"verbose_name": "draft of a consent form", "verbose_name_plural": "drafts of consent forms"},
        ),
        migrations.CreateModel(
            "EpsilonPolicy",
            [
                ID,
                *CHAINED,
                foreign("study", "consent.study", related_name="epsilon_policies"),
                ("version", models.PositiveIntegerField()),
                ("high", models.FloatField()),
                ("average", models.FloatField()),
                ("low", models.FloatField()),
                ("reason", models.TextField()),
                ("name_reason", models.TextField(blank=True, max_length=500)),
                ("answer_by", models.DateField(blank=True, null=True)),
                actor("proposed_by"),
                moment("proposed_at"),
            ],
            options={
                "verbose_name": "ε policy",
                "verbose_name_plural": "ε policies",
                "ordering": ["-version"],
                "constraints": [
                    unique("epsilon_policy_version_is_unique", "study", "version"),
                    unique("epsilonpolicy_sequence_is_unique", "study", "sequence"),
                    check("epsilon_policy_is_ordered", Q(average__gt=F("high"), high__gt=0, low__gt=F("average"))),
                ],
            },
        ),
        migrations.CreateModel(
            "EpsilonPolicyApproval",
            [
                ID,
                *CHAINED,
                ("policy", models.OneToOneField("consent.epsilonpolicy", PROTECT, related_name="approval")),
                actor("proposed_by"),
                actor("approved_by"),
                moment("approved_at"),
                moment("effective_from"),
            ],
            options={
                "verbose_name": "ε policy approval",
                "verbose_name_plural": "ε policy approvals",
                "ordering": ["sequence"],
                "constraints": [
                    check("epsilon_policy_is_approved_by_a_second_person", ~Q(approved_by=F("proposed_by")))
                ],
            },
        ),
        migrations.CreateModel(
            "Remark",
            [
                ID,
                *CHAINED,
                foreign("study", "consent.study", related_name="remarks"),
                foreign("policy", "consent.epsilonpolicy", related_name="remarks", null=True),
                foreign("form", "consent.consentformproposal", related_name="remarks", null=True),
                ("kind", models.CharField(max_length=10)),
                ("text", models.TextField(blank=True)),
                actor("made_by"),
                moment("made_at"),
            ],
            options={
                "verbose_name": "comment on a proposal",
                "verbose_name_plural": "comments on proposals",
                "ordering": ["sequence"],
                "constraints": [
                    unique("remark_sequence_is_unique", "study", "sequence"),
                    unique("epsilon_policy_is_rejected_once", "policy", condition=Q(kind="rejection")),
                    unique("consent_form_proposal_is_rejected_once", "form", condition=Q(kind="rejection")),
                    unique(
                        "epsilon_policy_is_approved_once_by_each", "policy", "made_by", condition=Q(kind="approval")
                    ),
                    unique("consent_form_is_approved_once_by_each", "form", "made_by", condition=Q(kind="approval")),
                    check("remark_kind_is_known", Q(kind__in=["comment", "rejection", "approval"])),
                    check("remark_has_a_text_unless_it_approves", Q(kind="approval") | ~Q(text="")),
                    check(
                        "remark_is_about_one_proposal",
                        Q(form__isnull=False, policy=None) | Q(form=None, policy__isnull=False),
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "ConflictOfInterest",
            [
                ID,
                *CHAINED,
                foreign("study", "consent.study", related_name="conflicts_of_interest"),
                actor("user"),
                ("reason", models.TextField(max_length=1000)),
                moment("declared_at"),
            ],
            options={
                "verbose_name": "conflict of interest",
                "verbose_name_plural": "conflicts of interest",
                "ordering": ["sequence"],
                "constraints": [
                    unique("conflictofinterest_sequence_is_unique", "study", "sequence"),
                    unique("conflict_of_interest_is_declared_once", "study", "user"),
                ],
            },
        ),
        migrations.CreateModel(
            "DataHolder",
            [
                ID,
                foreign("study", "consent.study", related_name="holders"),
                ("pseudonym", models.CharField(max_length=200)),
                foreign("user", USER, SET_NULL, related_name="holdings", blank=True, null=True),
                ("linked_at", models.DateTimeField(blank=True, null=True)),
                ("public_id", models.UUIDField(default=uuid.uuid4, unique=True)),
                ("erased_at", models.DateTimeField(blank=True, null=True)),
                moment("created_at"),
            ],
            options={
                "verbose_name": "data holder",
                "verbose_name_plural": "data holders",
                "ordering": ["study", "pseudonym"],
                "constraints": [
                    unique("holder_pseudonym_is_unique_in_a_study", "study", "pseudonym"),
                    unique("a_user_is_one_holder_of_a_study", "study", "user", condition=Q(user__isnull=False)),
                ],
            },
        ),
        migrations.CreateModel(
            "AnswerDraft",
            [
                ID,
                ("holder", models.OneToOneField("consent.dataholder", CASCADE, related_name="+")),
                ("answer", models.JSONField()),
                moment("kept_at"),
            ],
            options={"verbose_name": "answer to decide on later", "verbose_name_plural": "answers to decide on later"},
        ),
        migrations.CreateModel(
            "CheckAnswers",
            [
                ID,
                foreign("holder", "consent.dataholder", CASCADE),
                foreign("form", "consent.consentform", CASCADE),
                ("answered", models.PositiveSmallIntegerField(default=0)),
                ("right", models.PositiveSmallIntegerField(default=0)),
                ("counted", models.BooleanField(default=False)),
            ],
            options={
                "verbose_name": "answers to check questions",
                "verbose_name_plural": "answers to check questions",
                "constraints": [
                    unique("check_answers_of_a_holder_are_one_row", "holder", "form"),
                    check("check_answers_right_were_answered", Q(right__lte=F("answered"))),
                    check("check_answers_counted_are_cleared", Q(counted=False) | Q(answered=0, right=0)),
                ],
            },
        ),
        migrations.CreateModel(
            "Circumstance",
            [
                ID,
                *CHAINED,
                foreign("study", "consent.study", related_name="circumstances"),
                foreign("holder", "consent.dataholder", related_name="circumstances"),
                ("kind", models.CharField(max_length=10)),
                ("until", models.DateField(blank=True, null=True)),
                ("reason", models.CharField(max_length=500)),
                actor("recorded_by", blank=True, null=True),
                moment("recorded_at"),
            ],
            options={
                "verbose_name": "entry about who answers for a data holder",
                "verbose_name_plural": "entries about who answers for data holders",
                "ordering": ["sequence"],
                "constraints": [
                    unique("circumstance_sequence_is_unique", "study", "sequence"),
                    check(
                        "circumstance_has_a_day_where_it_needs_one",
                        Q(kind="guardian", until__isnull=False)
                        | Q(kind="proxy")
                        | Q(kind__in=["person", "incapable", "died"], until=None),
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "ConsentEvent",
            [
                ID,
                *CHAINED,
                foreign("study", "consent.study", related_name="consent_events", db_index=False),
                foreign("holder", "consent.dataholder", related_name="consent_events", db_index=False),
                ("kind", models.CharField(max_length=10)),
                ("level", models.CharField(blank=True, max_length=10)),
                foreign("form", "consent.consentform", blank=True, null=True),
                foreign("policy", "consent.epsilonpolicy", blank=True, null=True),
                ("channel", models.CharField(default="form", max_length=10)),
                ("evidence", models.CharField(blank=True, default="", max_length=64)),
                ("signed_on", models.DateField(blank=True, null=True)),
                ("answered_by", models.CharField(default="person", max_length=10)),
                ("renew_by", models.DateTimeField(blank=True, null=True)),
                ("epsilon_before", models.FloatField(blank=True, null=True)),
                ("authority", models.CharField(blank=True, default="", max_length=20)),
                ("statement", models.TextField(blank=True, default="")),
                ("text_read", models.CharField(blank=True, default="", max_length=35)),
                ("talked", models.BooleanField(default=False)),
                actor("recorded_by", blank=True, null=True),
                moment("recorded_at"),
            ],
            options={
                "verbose_name": "consent event",
                "verbose_name_plural": "consent events",
                "ordering": ["sequence"],
                "indexes": [
                    models.Index(
                        name="consent_event_last",
                        fields=["holder", "-sequence"],
                        include=("study", "kind", "level", "form", "policy", "recorded_at", "answered_by", "renew_by"),
                    ),
                    models.Index(
                        name="consent_event_renew_by", fields=["renew_by"], condition=Q(renew_by__isnull=False)
                    ),
                ],
                "constraints": [
                    unique("consentevent_sequence_is_unique", "study", "sequence"),
                    check(
                        "consent_event_has_a_level_where_it_grants_one",
                        Q(
                            form__isnull=False,
                            kind__in=["given", "changed"],
                            level__in=["HIGH", "AVERAGE", "LOW"],
                            policy__isnull=False,
                        )
                        | Q(kind__in=["withdrawn", "refused"], level=""),
                    ),
                    check(
                        "consent_on_paper_has_evidence_and_a_date",
                        ~Q(channel="paper") | (~Q(evidence="") & Q(signed_on__isnull=False)),
                    ),
                    check(
                        "consent_event_gives_up_a_promise_with_another",
                        Q(epsilon_before=None) | Q(epsilon_before__gt=0, kind__in=["given", "changed"]),
                    ),
                    check("consent_event_says_who_answered", Q(answered_by__in=["person", "guardian", "proxy"])),
                    check(
                        "consent_event_authority_is_declared_in_words",
                        Q(authority="", statement="")
                        | (
                            Q(
                                authority__in=["parents", "guardianship", "court", "power", "other"],
                                answered_by__in=["guardian", "proxy"],
                            )
                            & ~Q(statement="")
                        ),
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "DecisionCount",
            [
                (
                    "study",
                    models.OneToOneField("consent.study", CASCADE, related_name="+", primary_key=True, serialize=False),
                ),
                ("sequence", models.PositiveBigIntegerField()),
                ("counts", models.JSONField()),
            ],
            options={"verbose_name": "count of decisions", "verbose_name_plural": "counts of decisions"},
        ),
        migrations.CreateModel(
            "LevelAccess",
            [
                ID,
                *CHAINED,
                foreign("study", "consent.study", related_name="level_accesses"),
                foreign("holder", "consent.dataholder"),
                ("reason", models.CharField(max_length=500)),
                actor("seen_by"),
                moment("seen_at"),
            ],
            options={
                "verbose_name": "look-up of a data holder's choice",
                "verbose_name_plural": "look-ups of data holders' choices",
                "ordering": ["sequence"],
                "constraints": [unique("levelaccess_sequence_is_unique", "study", "sequence")],
            },
        ),
        migrations.CreateModel(
            "Invitation",
            [
                ID,
                foreign("study", "consent.study", CASCADE, related_name="invitations"),
                foreign("holder", "consent.dataholder", CASCADE, related_name="invitations", null=True),
                ("code_hash", models.CharField(max_length=64, unique=True)),
                actor("created_by", null=True),
                moment("created_at"),
                ("last_used_at", models.DateTimeField(null=True)),
                actor("revoked_by", null=True),
                ("revoked_at", models.DateTimeField(null=True)),
            ],
            options={
                "verbose_name": "invitation",
                "verbose_name_plural": "invitations",
                "ordering": ["-created_at", "-pk"],
                "indexes": [models.Index(name="invitation_latest", fields=["study", "-created_at", "-id"])],
                "constraints": [
                    unique("a_holder_has_one_valid_invitation", "holder", condition=Q(revoked_at__isnull=True))
                ],
            },
        ),
        migrations.CreateModel(
            "Letterhead",
            [
                ID,
                (
                    "study",
                    models.OneToOneField(on_delete=CASCADE, related_name="letterhead", to="consent.study"),
                ),
                ("texts", models.JSONField(blank=True, default=dict)),
                ("logo", models.TextField(blank=True)),
            ],
            options={"verbose_name": "letterhead", "verbose_name_plural": "letterheads"},
        ),
        migrations.CreateModel(
            "LinkReissue",
            [
                ID,
                *CHAINED,
                foreign("study", "consent.study", related_name="link_reissues"),
                foreign("holder", "consent.dataholder", related_name="link_reissues"),
                ("reason", models.CharField(max_length=500)),
                actor("issued_by"),
                moment("issued_at"),
            ],
            options={
                "verbose_name": "new link for a data holder",
                "verbose_name_plural": "new links for data holders",
                "ordering": ["sequence"],
                "constraints": [unique("linkreissue_sequence_is_unique", "study", "sequence")],
            },
        ),
        migrations.CreateModel(
            "HolderAddress",
            [
                ID,
                foreign("study", "consent.study", CASCADE),
                ("holder", models.OneToOneField("consent.dataholder", CASCADE, related_name="address")),
                ("way", models.CharField(max_length=10)),
                ("email", models.EmailField(blank=True, max_length=254)),
                ("key", models.CharField(default=new_key, max_length=32, unique=True)),
                ("language", models.CharField(max_length=10)),
                ("confirmed_at", models.DateTimeField(null=True)),
                moment("left_at"),
            ],
            options={
                "verbose_name": "address left by a data holder",
                "verbose_name_plural": "addresses left by data holders",
                "ordering": ["pk"],
                "constraints": [
                    check(
                        "address_of_mails_alone",
                        (Q(way="mail") & ~Q(email="")) | Q(way__in=["letter", "nothing"], email=""),
                    )
                ],
            },
        ),
        migrations.CreateModel(
            "Mail",
            [
                ID,
                foreign("user", USER, CASCADE, null=True),
                foreign("address", "consent.holderaddress", CASCADE, null=True, related_name="mails"),
                ("kind", models.CharField(max_length=30)),
                foreign("study", "consent.study", CASCADE, null=True),
                ("about", models.CharField(blank=True, max_length=40)),
                ("state", models.CharField(default="waiting", max_length=10)),
                ("tries", models.PositiveSmallIntegerField(default=0)),
                ("fault", models.CharField(blank=True, max_length=100)),
                moment("created_at"),
                moment("due_at"),
                ("sent_at", models.DateTimeField(null=True)),
            ],
            options={
                "verbose_name": "mail",
                "verbose_name_plural": "mails",
                "ordering": ["-created_at", "-pk"],
                "indexes": [models.Index(name="mail_waiting", fields=["due_at"], condition=Q(state="waiting"))],
                "constraints": [
                    check("mail_state_is_known", Q(state__in=["waiting", "sent", "failed", "dropped"])),
                    check(
                        "mail_goes_to_an_account_or_an_address",
                        Q(user__isnull=True, address__isnull=False) | Q(user__isnull=False, address__isnull=True),
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "MailWishes",
            [
                ID,
                ("user", models.OneToOneField(USER, CASCADE, related_name="mail_wishes")),
                ("language", models.CharField(max_length=10)),
                ("uses", models.BooleanField(default=False)),
                ("results", models.BooleanField(default=True)),
                ("approvals", models.BooleanField(default=True)),
                ("ends", models.BooleanField(default=True)),
                ("shares", models.BooleanField(default=True)),
            ],
            options={"verbose_name": "email settings", "verbose_name_plural": "email settings"},
        ),
        migrations.CreateModel(
            "Letter",
            [
                ID,
                foreign("study", "consent.study", CASCADE, related_name="letters"),
                foreign("holder", "consent.dataholder", CASCADE, related_name="letters"),
                ("kind", models.CharField(max_length=10)),
                ("about", models.CharField(max_length=40)),
                actor("made_by"),
                moment("made_at"),
            ],
            options={
                "verbose_name": "letter",
                "verbose_name_plural": "letters",
                "ordering": ["-made_at", "-pk"],
                "indexes": [models.Index(name="letter_about", fields=["study", "kind", "about"])],
                "constraints": [
                    check("letter_kind_is_known", Q(kind__in=["new_form", "renewal", "answerer", "receipt", "news"]))
                ],
            },
        ),
        migrations.CreateModel(
            "News",
            [
                ID,
                foreign("study", "consent.study", CASCADE, related_name="news"),
                ("kind", models.CharField(max_length=10)),
                ("about", models.CharField(blank=True, max_length=40)),
                moment("published_at"),
            ],
            options={
                "verbose_name": "news",
                "verbose_name_plural": "news",
                "ordering": ["-published_at", "-pk"],
                "indexes": [models.Index(name="news_latest", fields=["study", "-published_at"])],
                "constraints": [
                    unique("a_result_is_told_once", "study", "about", condition=Q(kind="result")),
                    check("news_kind_is_known", Q(kind__in=["result", "year"])),
                ],
            },
        ),
        migrations.CreateModel(
            "WebhookEndpoint",
            [
                ID,
                foreign("study", "consent.study", CASCADE, related_name="webhooks"),
                ("url", models.URLField(max_length=500)),
                ("events", models.JSONField()),
                ("secret", models.TextField()),
                actor("created_by"),
                moment("created_at"),
            ],
            options={"verbose_name": "webhook", "verbose_name_plural": "webhooks", "ordering": ["study", "pk"]},
        ),
        migrations.CreateModel(
            "WebhookDelivery",
            [
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                foreign("endpoint", "consent.webhookendpoint", CASCADE, related_name="deliveries"),
                ("event", models.CharField(max_length=40)),
                ("body", models.TextField()),
                ("state", models.CharField(default="waiting", max_length=10)),
                ("tries", models.PositiveSmallIntegerField(default=0)),
                ("status", models.PositiveSmallIntegerField(blank=True, null=True)),
                ("fault", models.CharField(blank=True, max_length=100)),
                moment("created_at"),
                moment("due_at"),
                ("sent_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "webhook delivery",
                "verbose_name_plural": "webhook deliveries",
                "ordering": ["-created_at", "-pk"],
                "indexes": [models.Index(name="webhook_waiting", fields=["due_at"], condition=Q(state="waiting"))],
                "constraints": [check("webhook_delivery_state_is_known", Q(state__in=["waiting", "sent", "failed"]))],
            },
        ),
        migrations.CreateModel(
            "Disposal",
            [
                ID,
                *CHAINED,
                foreign("study", "consent.study", related_name="disposals"),
                ("kind", models.CharField(max_length=10)),
                foreign("holder", "consent.dataholder", related_name="disposals", null=True),
                ("subject", models.CharField(blank=True, max_length=100)),
                ("rows", models.PositiveIntegerField(blank=True, null=True)),
                ("files", models.PositiveIntegerField(blank=True, null=True)),
                ("reason", models.CharField(blank=True, max_length=500)),
                actor("recorded_by", null=True),
                moment("recorded_at"),
            ],
            options={
                "verbose_name": "closing or erasure",
                "verbose_name_plural": "closings and erasures",
                "ordering": ["sequence"],
                "constraints": [
                    unique("disposal_sequence_is_unique", "study", "sequence"),
                    check(
                        "disposal_kind_is_known_and_says_of_whom",
                        Q(holder__isnull=False, kind__in=["asked", "erased", "kept"])
                        | Q(holder__isnull=True, kind__in=["dataset", "encoder", "closed", "expired"]),
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "Checkpoint",
            [
                ID,
                ("number", models.PositiveIntegerField(unique=True)),
                ("day", models.DateField(unique=True)),
                ("entry", models.TextField()),
                ("note", models.TextField()),
                ("key", models.CharField(blank=True, max_length=64)),
                ("heads", models.JSONField(default=dict)),
                moment("made_at"),
            ],
            options={
                "verbose_name": "signed checkpoint",
                "verbose_name_plural": "signed checkpoints",
                "ordering": ["number"],
            },
        ),
        migrations.CreateModel(
            "Administrator",
            [
                ID,
                ("user", models.OneToOneField(USER, CASCADE, related_name="administrator")),
            ],
            options={
                "verbose_name": "administrator of the installation",
                "verbose_name_plural": "administrators of the installation",
            },
        ),
        migrations.CreateModel(
            "AccountChange",
            [
                ID,
                *CHAINED,
                actor("user"),
                ("kind", models.CharField(max_length=20)),
                actor("changed_by", null=True),
                moment("changed_at"),
            ],
            options={
                "verbose_name": "account change",
                "verbose_name_plural": "account changes",
                "ordering": ["sequence"],
                "constraints": [
                    unique("account_change_sequence_is_unique", "sequence"),
                    check(
                        "account_change_kind_is_known",
                        Q(
                            kind__in=[
                                *("created", "changed", "invited", "appointed", "dismissed", "closed", "reopened"),
                                *("superuser", "no_superuser", "admin", "no_admin", "deleted", "reviewed"),
                            ]
                        ),
                    ),
                ],
            },
        ),
    ]
