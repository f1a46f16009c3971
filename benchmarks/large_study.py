"""A study of very many holders and runs, written straight into the tables: the services would take days to build it.

Holders join in waves, at three levels, under three ε policies; later some change their level and some withdraw. Each
run is of all who take part by then, in groups of those with the same ε and the same past. The hashes are not right.
"""

import uuid
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

WAVES = 10
POLICIES = ((1.0, 2.0, 3.0), (0.8, 2.0, 3.5), (0.9, 1.8, 4.0))
LEVELS = ("HIGH", "AVERAGE", "LOW")
#: What holders did after they had joined, and how many of a hundred did so.
STAYED, CHANGED, LEFT = range(3)
CHANGED_OF_100, LEFT_OF_100 = 10, 3


@dataclass(frozen=True)
class Decision:
    """``policy`` is the position of the policy in force."""

    kind: str
    level: str
    policy: int


@dataclass(frozen=True)
class Part:
    """The holders who joined in the same wave at the same level and did the same later."""

    later: int
    wave: int
    level: int

    @property
    def decisions(self) -> list[Decision]:
        last = len(POLICIES) - 1
        return [
            Decision("given", LEVELS[self.level], self.wave * len(POLICIES) // WAVES),
            *([Decision("changed", LEVELS[self.level - 1], last)] if self.later == CHANGED else []),
            *([Decision("withdrawn", "", last)] if self.later == LEFT else []),
        ]

    def standing_in(self, run: int, runs: int) -> Decision | None:
        """Their last decision before ``run``: whoever decides anew does so after two thirds of the study."""
        joined = self.wave * runs // WAVES
        if run < joined:
            return None
        return self.decisions[-1 if run > max(joined, 2 * runs // 3) else 0]


#: In the order of the numbers that ``_holders_write`` gives them.
PARTS = [Part(later, wave, level) for later in (STAYED, CHANGED, LEFT) for wave in range(WAVES) for level in range(3)]


def large_study(holders: int, runs: int) -> Any:
    """The study after ``runs`` runs of ``holders``, and of one more, from whose decision the others' are copied."""
    from django.db import connection

    from consent.models import ConsentForm, EpsilonPolicyApproval
    from consent.services import consent_give
    from tests.factories import form_publish, holder_create, policy_approve, study_create

    study = study_create("large", delta=1e-8)
    form_publish(study)
    for epsilons in POLICIES:
        policy_approve(study, *epsilons)
    approvals = list(EpsilonPolicyApproval.objects.filter(policy__study=study).order_by("pk"))
    form = ConsentForm.objects.get(study=study)
    given = consent_give(holder=holder_create(study), level="LOW", form=form, acting_user=None)
    histories = _runs_write(study, approvals, runs)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":  # looking up what each row refers to takes longer than writing it
            cursor.execute("SET session_replication_role = replica")
        _holders_write(cursor, given, approvals, histories, holders)
        if connection.vendor == "postgresql":
            cursor.execute("SET session_replication_role = DEFAULT")
            cursor.execute("VACUUM ANALYZE")
        else:
            cursor.execute("ANALYZE")
    return study


def _runs_write(study: Any, approvals: list[Any], runs: int) -> dict[Part, int]:
    """The accounts of all runs, their groups and histories; the newest history of each part."""
    from accounting.models import PrivacyGroup, RunAccount, SpendingHistory
    from accounting.privacy import DEFAULT_ORDERS, gaussian_rdp
    from consent.selectors import EpsilonRule

    rule = EpsilonRule(study, approvals[-1].effective_from)
    newest: dict[Part, int] = {}
    curves = {None: 0 * DEFAULT_ORDERS}
    for run in range(runs):
        account = RunAccount.objects.create(
            study=study, run=uuid.uuid4(), delta=study.delta, orders=DEFAULT_ORDERS.tolist(), method="exact",
            conversion="improved", settled_at=approvals[-1].effective_from,
        )  # fmt: skip
        members: dict[tuple[float, str, int | None], list[Part]] = defaultdict(list)
        for part in PARTS:
            decision = part.standing_in(run, runs)
            if decision and decision.level:
                approval = approvals[decision.policy]
                epsilon = rule.epsilon(approval.policy_id, decision.level, approval.effective_from)
                members[epsilon, decision.level, newest.get(part)].append(part)
        nodes = []
        for index, (epsilon, level, parent) in enumerate(members):
            cost = gaussian_rdp(8 * runs**0.5 / epsilon)
            group = PrivacyGroup(
                account=account, index=index, name=f"{level} {index}", level=level, epsilon=epsilon, holders=0,
                past_rdp=curves[parent].tolist(), spent_rdp=cost.tolist(), published_rdp=cost.tolist(),
            )  # fmt: skip
            nodes.append(SpendingHistory(study=study, parent_id=parent, group=group))
        PrivacyGroup.objects.bulk_create(node.group for node in nodes)
        for node in SpendingHistory.objects.bulk_create(nodes):
            curves[node.pk] = curves[node.parent_id] + node.group.spent_rdp
        for node, parts in zip(nodes, members.values(), strict=True):
            newest |= dict.fromkeys(parts, node.pk)
    return newest


def _holders_write(cursor: Any, given: Any, approvals: list[Any], histories: dict[Part, int], holders: int) -> None:
    """The holders, with ids after that of ``given``'s, their decisions as copies of it, and their histories."""
    from django.db import connection

    if connection.vendor == "postgresql":
        series, public_id, number = f"generate_series(1::bigint, {holders}) AS s(n)", "gen_random_uuid()", "bigint"
        moment = "timestamptz"
    else:
        numbers = f"WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {holders})"
        series = f"({numbers} SELECT n FROM s)"
        public_id, number, moment = "lower(hex(randomblob(16)))", "integer", "datetime"
    decided_anew = CHANGED_OF_100 + LEFT_OF_100
    later = f"CASE WHEN n % 100 < {CHANGED_OF_100} THEN 1 WHEN n % 100 < {decided_anew} THEN 2 ELSE 0 END"
    cursor.execute(
        f"CREATE TEMPORARY TABLE holder AS SELECT n, {given.holder_id} + n AS id, "
        f"({later}) * {3 * WAVES} + n / 100 % {3 * WAVES} AS part FROM {series}"
    )
    cursor.execute(
        f"CREATE TEMPORARY TABLE decision "
        f"(part {number}, kind text, level text, policy {number}, form {number}, at {moment})"
    )
    cursor.executemany(
        "INSERT INTO decision VALUES (%s, %s, %s, %s, %s, %s)",
        [
            (
                number, each.kind, each.level, approvals[each.policy].policy_id if each.level else None,
                given.form_id if each.level else None,
                connection.ops.adapt_datetimefield_value(approvals[each.policy].effective_from),
            )
            for number, part in enumerate(PARTS) for each in part.decisions
        ],
    )  # fmt: skip
    cursor.execute(
        "INSERT INTO consent_dataholder (id, study_id, pseudonym, public_id, created_at) "
        f"SELECT h.id, d.study_id, 'P' || n, {public_id}, d.created_at "
        f"FROM holder h, consent_dataholder d WHERE d.id = {given.holder_id}"
    )
    # Holders decide in no order: the numbers of a study's events say nothing of those of its holders.
    copied = {
        "sequence": "1 + row_number() OVER (ORDER BY d.at, d.kind <> 'given', h.n * 7919 % 1000003)",
        "holder_id": "h.id", "kind": "d.kind", "level": "d.level", "policy_id": "d.policy", "form_id": "d.form",
        "recorded_at": "d.at",
    }  # fmt: skip
    columns = [field.column for field in given._meta.concrete_fields if not field.primary_key]
    cursor.execute(
        f"INSERT INTO consent_consentevent ({', '.join(columns)}) "
        f"SELECT {', '.join(copied.get(column, f'e.{column}') for column in columns)} "
        f"FROM holder h JOIN decision d ON d.part = h.part, consent_consentevent e WHERE e.id = {given.pk}"
    )
    cursor.execute(f"CREATE TEMPORARY TABLE newest (part {number}, history {number})")
    cursor.executemany(
        "INSERT INTO newest VALUES (%s, %s)",
        [(number, histories[part]) for number, part in enumerate(PARTS) if part in histories],
    )
    cursor.execute(
        "INSERT INTO accounting_holderspending (holder_id, history_id) "
        "SELECT h.id, newest.history FROM holder h JOIN newest ON newest.part = h.part"
    )
