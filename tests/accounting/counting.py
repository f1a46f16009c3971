"""Studies for counts: one in which somebody has spent more than they may now, and one of many people."""

from consent import services
from consent.models import Study
from tests.factories import form_publish, policy_approve, study_create
from tests.training.runs import consents_give


def study_of_many(holders: int) -> Study:
    """A study whose promises are so weak that a count of its holders stands out of the noise."""
    study = study_create("many", delta=0.01)
    form_publish(study)
    policy_approve(study, 5.0, 6.0, 7.0)
    services.holders_register(study=study, pseudonyms=[f"p-{place:03}" for place in range(holders)])
    consents_give(study, "HAL")
    return study
