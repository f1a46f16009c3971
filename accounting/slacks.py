"""Slacks: the δ′ of a study's sampled runs, which are taken out of δ before any cap is computed.

Public: a run has the same slack whatever its holders are, and it is in the register with the run's charge.
"""

import math
from collections.abc import Iterator

from accounting.caps import SLACKS, slack_of
from accounting.models import Release
from common.journal import note
from consent.models import Study

#: Of what caps leave of δ: the rounding of sums of slacks.
_ROUNDING = 1e-9


def charged_slack(study: Study) -> float:
    """The sum of the δ′ of every release of a study that has one."""
    with_slack = Release.objects.filter(study=study, content__has_key="slack")
    return math.fsum(float(content["slack"]) for content in with_slack.values_list("content", flat=True))


def slack_fits(study: Study, slack: float) -> bool:
    """Whether a further slack fits into what caps leave of the study's δ. The caller holds the study's lock."""
    return charged_slack(study) + slack <= SLACKS * slack_of(study.delta) * (1 + _ROUNDING)


def slack_note(study: Study) -> None:
    """Note in the journal which slacks were charged: a backup may forget them."""
    note(study.pk, facts={"slack": charged_slack(study)})


def slack_faults(study: Study) -> Iterator[str]:
    """Are the slacks of all releases together what caps leave of δ, or less?"""
    if not slack_fits(study, 0.0):
        yield f"The slacks of sampled runs add up to {charged_slack(study):g}, more than caps leave of the study's δ."
