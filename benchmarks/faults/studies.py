"""Studies of a campaign: small, with many short batches, and with some runs of one method always in progress."""

import random
from typing import Any

from benchmarks.faults.people import People

STUDIES, RUNS_OF_A_STUDY = 2, 2
#: Number of runs after which the next study begins, because a study may have ten sampled runs.
MOST_RUNS = 8
#: Parameters with which a run of teachers spends a similar time in each stage.
TEACHERS: dict[str, Any] = {
    "learner": "random_forest",
    "learner_parameters": {"trees": 60},
    "aggregator": {"name": "confident_gnmax", "sigma": 2000.0, "sigma_threshold": 4000.0, "threshold": 3.0},
    "batch_size": 4,
    "teachers": 12,
}
#: Shares of every cap (SHARES) that are so small that some people run out in the middle of a run.
ASKING: dict[str, Any] = {
    "choices": {"rounds": 2, "sigma": 200.0, "radius_share": 0.3, "kernel": "epanechnikov"},
    "batch_size": 10,
}
STEPS: dict[str, Any] = {"choices": {"steps": 100, "sigma": 300.0}, "batch_size": 5}
#: Two in five of HEAD_COUNT at each of three levels are drawn in a step. Finding the cost of this takes seconds.
SAMPLES: dict[str, Any] = {"choices": {"steps": 100, "expected": 9_600.0, "network": "mlp"}, "batch_size": 5}
STUDENT: dict[str, Any] = {"student_learner": "random_forest", "student_parameters": {"trees": 100}}
#: Public number of holders at each level, so that a batch is asked in several shards.
HEAD_COUNT = 8_000
#: Less than one over the number of people.
DELTA = 4e-5
#: Number of points put to the vote, for enough batches that kills can hit them.
POINTS = 120
#: Methods with the share of every cap that a run may use. Unused parts become free for the next run.
SHARES = {"neighbours": 0.01, "individual": 0.01, "sample": 0.02, "scale": 0.02, "pate": 0.05}


def _fields(method: str) -> dict[str, Any]:
    """Return the fields for proposing a run of a method."""
    from tests.training.asking import ASKING_RUN, SAMPLED_RUN, STEPS_RUN
    from tests.training.runs import TABLE_RUN

    return (
        STUDENT
        | {
            "neighbours": ASKING_RUN | ASKING,
            "individual": STEPS_RUN | STEPS,
            "sample": SAMPLED_RUN | SAMPLES | {"variant": "sample"},
            "scale": SAMPLED_RUN | SAMPLES,
            "pate": TABLE_RUN | TEACHERS,
        }[method]
    )


class Studies:
    """Studies with runs of one method in progress.

    Args:
        method: A key of :data:`SHARES`.
        random: Random generator for people's actions.
    """

    def __init__(self, method: str, random: random.Random) -> None:
        self.method, self.random = method, random
        self.all: list[Any] = []
        self.people: dict[int, People] = {}
        self.open = [self._study() for _ in range(STUDIES)]

    def _study(self) -> Any:
        from tests.training.runs import study_with_table

        slug = f"{self.method}-{len(self.all)}"
        study = study_with_table(slug, holders=31, records=4, points=POINTS, retain_votes=True, delta=DELTA)
        self.all.append(study)
        self.people[study.pk] = People(study)
        self._head_counts_enter(study)
        return study

    def _head_counts_enter(self, study: Any) -> None:
        """Enter a large public number of holders: drawn counts would be small, and plans use the latest entry."""
        from consent.models import Level
        from tests.factories import user_create
        from training.services.drawings import head_counts_enter

        counts = dict.fromkeys(Level.values, HEAD_COUNT)
        head_counts_enter(study=study, acting_user=user_create("olga"), counts=counts)

    def top_up(self) -> None:
        """Propose runs up to the number worked on at once. Runs of one study wait for each other."""
        from tests.factories import user_create
        from training.models import Run
        from training.services.approvals import run_approve

        for place, study in enumerate(self.open):
            missing = RUNS_OF_A_STUDY - Run.objects.filter(study=study, status__in=Run.ACTIVE).count()
            if missing > 0 and Run.objects.filter(study=study).count() >= MOST_RUNS:
                self.open[place] = study = self._study()
            for _ in range(missing):
                run_approve(run=self.propose(study), acting_user=user_create("olga"), share=SHARES[self.method])

    def propose(self, study: Any) -> Any:
        """Return a draft of the method."""
        from tests.training.runs import run_draft

        self._head_counts_enter(study)
        return run_draft(study, **_fields(self.method))

    def deed(self) -> Any:
        """Return an action that a person asks the site to carry out."""
        study = self.random.choice(self.open)
        return self.people[study.pk].deed(self.random, lambda: self.propose(study), SHARES[self.method])
