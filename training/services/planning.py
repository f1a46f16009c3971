"""What a run would do, before it does it: groups, teachers, weights, warnings."""

from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from django.utils import timezone

from accounting.privacy import DEFAULT_ORDERS, Conversion, gaussian_rate, remaining_epsilon
from accounting.selectors import Standing, standings
from accounting.services import GroupOpening
from consent.selectors import Snapshot, consent_snapshot, policy_in_force
from training.artifacts import arrays_load
from training.models import Run
from training.pate import Group, GroupPlan, Plan, PlanError, aggregator_from_parameters, make_plan
from training.sentences import Sentence, gettext_noop


@dataclass(frozen=True)
class RunPlan:
    """A plan with the consents that it rests on.

    ``standings`` are the privacy groups that take part, in the order in which they are charged; ``group_of`` the index
    in ``plan.groups`` of each; ``allowances`` the ε that the run may cost each. ``notes`` are choices and warnings for
    people.
    """

    plan: Plan
    snapshot: Snapshot
    standings: list[Standing]
    group_of: list[int]
    allowances: list[float]
    notes: tuple[Sentence, ...]


def run_plan(run: Run) -> RunPlan:
    """Plan ``run`` (saved or not) on the consents of this moment. Raises PlanError, which says what to do."""
    if policy_in_force(run.study) is None:
        raise PlanError(
            gettext_noop("The study has no approved ε policy. Ask its ethics committee to propose and approve one.")
        )
    owners = np.unique(arrays_load(run.private_dataset.artifact, "holder")["holder"])
    snapshot = consent_snapshot(run.study, timezone.now())
    snapshot = snapshot.of(owners)
    if len(snapshot) == 0:
        raise PlanError(
            gettext_noop(
                "No holder of the private dataset has given consent. Wait for consents before you start a run."
            )
        )
    groups = standings(run.study, snapshot, conversion=cast(Conversion, run.conversion), fresh=run.simulation)
    notes = [_nothing_left(group) for group in groups if group.remaining <= 0]
    held = any(group.held.any() for group in groups)
    groups = [group for group in groups if group.remaining > 0]
    if not groups and held:
        raise PlanError(
            gettext_noop("All that is left is reserved for other runs. Wait until they have ended, or cancel one.")
        )
    if not groups:
        raise PlanError(gettext_noop("No group has any budget left. Only new consents would change that."))
    allowances = {group.name: allowance(run, group) for group in groups}
    notes += [_less_than_asked(run, group) for group in groups if _asks_too_much(run, group)]
    plan = make_plan(
        [Group(group.name, group.epsilon, len(group.holders), allowances[group.name]) for group in groups],
        variant=run.variant,
        teachers=run.teachers,
        aggregator=aggregator_from_parameters(run.aggregator),
        delta=run.study.delta,
        classes=len(run.private_dataset.classes),
        weight_scheme=run.weight_scheme,
        conversion=cast(Conversion, run.conversion),
        small_groups=run.small_groups,
    )
    groups = [group for group in groups if group.name not in plan.left_out]
    return RunPlan(
        plan=plan,
        snapshot=snapshot,
        standings=groups,
        group_of=[plan.index_of(group.name) for group in groups],
        allowances=[allowances[group.name] for group in groups],
        notes=(*notes, *plan.notes),
    )


def allowance(run: Run, group: Standing) -> float:
    """The ε that ``run`` may cost the holders of ``group``, of what is left and not reserved for other runs."""
    if run.spending_epsilons:
        return min(run.spending_epsilons[group.level], group.remaining)
    if run.spending_share == 1:
        return group.remaining
    return remaining_epsilon(
        group.past + group.held,
        group.epsilon,
        run.study.delta,
        conversion=cast(Conversion, run.conversion),
        share=run.spending_share,
    )


def openings(run: Run, planned: RunPlan) -> list[GroupOpening]:
    """The privacy groups for which the run's budget is reserved, each with the Gaussian curve of its allowance."""
    conversion = cast(Conversion, run.conversion)
    nothing = np.zeros(len(DEFAULT_ORDERS))
    return [
        GroupOpening(
            group.name,
            group.level,
            group.epsilon,
            group.holders,
            group.past,
            reserved=DEFAULT_ORDERS * gaussian_rate(nothing, allowed, run.study.delta, conversion=conversion),
            # Who may spend all that is left need not keep to the shape of that curve.
            allowance=allowed if allowed < group.remaining else None,
        )
        for group, allowed in zip(planned.standings, planned.allowances, strict=True)
    ]


def _asks_too_much(run: Run, group: Standing) -> bool:
    return run.spending_epsilons.get(group.level, 0.0) > group.remaining


def _less_than_asked(run: Run, group: Standing) -> Sentence:
    told = gettext_noop("Group %(group)s: of the ε = %(asked)g that was asked for, only %(left).3g is left to reserve.")
    return Sentence(told, group=group.name, asked=run.spending_epsilons[group.level], left=group.remaining)


def _nothing_left(group: Standing) -> Sentence:
    if group.held.any():
        told = gettext_noop(
            "Group %(group)s: what was left of its ε = %(epsilon)g is reserved for other runs, so its holders "
            "(%(holders)d) are left out."
        )
    else:
        told = gettext_noop(
            "Group %(group)s has nothing left of its ε = %(epsilon)g, so its holders (%(holders)d) are left out."
        )
    return Sentence(told, group=group.name, epsilon=group.epsilon, holders=len(group.holders))


def plan_to_json(planned: RunPlan) -> dict[str, Any]:
    """What a run keeps of its plan: everything but the holders."""
    plan = planned.plan
    return {
        "variant": plan.variant,
        "teachers": plan.teachers,
        "aggregator": plan.aggregator.parameters(),
        "groups": [asdict(group) for group in plan.groups],
        "left_out": list(plan.left_out),
        "notes": [note.to_json() for note in planned.notes],
        "group_of": planned.group_of,
        "levels": [group.level for group in planned.standings],
    }


def plan_from_json(document: dict[str, Any]) -> Plan:
    """The plan that :func:`plan_to_json` kept, without its notes."""
    return Plan(
        variant=document["variant"],
        groups=tuple(GroupPlan(**{**group, "merged": tuple(group["merged"])}) for group in document["groups"]),
        aggregator=aggregator_from_parameters(document["aggregator"]),
        teachers=document["teachers"],
        left_out=tuple(document["left_out"]),
    )
