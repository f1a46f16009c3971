"""Disclosure of a study to deciders: nothing that changes exactly with what one person does.

Whoever decides about runs or policies (operators, the ethics committee, researchers) sees releases and acts of staff
alone: condition 1 of the guarantee. Exact numbers of people, and lists that name them, are for data stewards, who
handle them, and for auditors, who decide nothing. This module is the one list of what is public of a study's chains;
pages, answers, mails and files take it from here. A chain that is not on the list is not public.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Model
from django.utils.text import capfirst

from common.append_only import Chained

#: The permission of those who see exact numbers of people.
SEES_PEOPLE = "consent.view_group_sizes"

#: Chains that grow with releases and with acts of staff about runs, policies, forms and roles. How long all others are
#: follows from single people: decisions, who answers for somebody, erasures, new links, looks.
PUBLIC_CHAINS = frozenset(
    {
        "accounting.release",
        "accounting.sharerecord",
        "consent.configurationchange",
        "consent.consentform",
        "consent.consentformproposal",
        "consent.epsilonpolicy",
        "consent.epsilonpolicyapproval",
        "consent.remark",
        "consent.rolechange",
        "training.proposalchange",
    }
)


def sees_people(user: Any, study: Model) -> bool:
    """Whether ``user`` sees exact numbers of people in ``study``, and faults with the rows that they are about."""
    return user.has_perm(SEES_PEOPLE, study)


@dataclass(frozen=True)
class ToldChain:
    """Facts of a chain that one reader is told.

    Attributes:
        name: of its rows, with a capital first letter.
        rows: how many there are; None where the reader is not told.
        is_whole: whether no fault was found.
        faults: the faults, in words; none where the reader is told only that there are some.
    """

    name: str
    rows: int | None
    is_whole: bool
    faults: list[str]


def chain_report(
    model: type[Chained], study_id: int, find: Callable[[], Iterable[str]], *, sees_people: bool
) -> ToldChain:
    """Facts that a reader is told of a study's chain and of the faults that ``find()`` yields.

    Faults name rows by their sequence number, and so tell how long a chain is: of none of them is a decider told more
    than that there is one.
    """
    name, faults = str(model._meta.verbose_name), list(find())
    is_public = sees_people or model._meta.label_lower in PUBLIC_CHAINS
    return ToldChain(
        name if name.startswith("ε") else capfirst(name),  # the capital of ε looks like an E
        model.head(study_id).sequence if is_public else None,
        not faults,
        faults if sees_people else [],
    )
