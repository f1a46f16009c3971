"""Slacks: the δ′ of a study's sampled runs, which are subtracted from δ before any cap is computed.

Public: a run's slack does not depend on its holders, and it is in the register with the run's charge.
"""

import math
from collections.abc import Iterator

from accounting.caps import SLACKS, slack_of
from accounting.models import Release
from common.journal import note
from consent.models import Study

#: Tolerance, as a share of δ reserved by caps, for the rounding of sums of slacks.
_ROUNDING = 1e-9


def charged_slack(study: Study) -> float:
    """Return the sum of the δ′ of every release of a study that has one."""
    with_slack = Release.objects.filter(study=study, content__has_key="slack")
    return math.fsum(float(content["slack"]) for content in with_slack.values_list("content", flat=True))


def slack_fits(study: Study, slack: float) -> bool:
    """Return whether a further slack fits into the δ that caps leave for slacks. The caller holds the study's lock."""
    return charged_slack(study) + slack <= SLACKS * slack_of(study.delta) * (1 + _ROUNDING)


def slack_note(study: Study) -> None:
    """Record charged slacks in the journal, because a backup may forget them."""
    note(study.pk, facts={"slack": charged_slack(study)})


def slack_faults(study: Study) -> Iterator[str]:
    """Check that the slacks of all releases together do not exceed what caps leave of δ."""
    if not slack_fits(study, 0.0):
        yield f"The slacks of sampled runs add up to {charged_slack(study):g}, more than caps leave of the study's δ."
