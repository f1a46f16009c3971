"""What a site remembers of its answers: charges, release, bytes and number are written in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
from django.utils import timezone

from accounting.models import Release
from accounting.services import release_record
from common.sentences import gettext_noop
from learning.sites.documents import JointQuestion as QuestionDocument
from learning.sites.documents import Refused
from learning.sites.protocol import SiteAnswer
from training.alliances.documents import sums_folder, vector_save
from training.engine.commits import Charges
from training.engine.spending import charged_tell
from training.models import JointQuestion, Run


@dataclass(frozen=True, eq=False)
class SiteLedger:
    """See :class:`learning.sites.protocol.Ledger`.

    Attributes:
        run: Of the site; to commit, held by :func:`training.engine.spending.spending`.
        charges: Of the people of the site, for the whole part; None where nothing is to be committed.
        costs: What each promise of the plan counts as charged, in μ²; public.
        bounds: The most that anybody of each promise can have been charged, in μ²; public.
        content: What the register says of the question.
        attempt: The file that says who was asked, where that is not the same throughout the run.
    """

    run: Run
    charges: Charges | None = None
    costs: Sequence[float] = ()
    bounds: Sequence[float] = ()
    content: dict[str, Any] | None = None
    attempt: str = ""

    def last(self, roster: str) -> int:
        del roster  # a run has one
        answered = JointQuestion.objects.filter(joint__run=self.run.pk, answered_at__isnull=False)
        return answered.order_by("number").values_list("number", flat=True).last() or 0

    def commit(self, question: QuestionDocument, answer: SiteAnswer) -> None:
        assert self.charges is not None, "made to commit"
        row = JointQuestion.objects.select_for_update().get(joint__run=self.run.pk, number=question.number)
        if question.number <= self.last(question.roster):
            raise Refused(gettext_noop("This question, or a later one of the run, was answered meanwhile."))
        artifact = f"{sums_folder(row.joint)}/{question.number}-{uuid4().hex[:12]}.npz"
        vector_save(artifact, answer.vector)
        document = answer.answer.document
        release_record(
            study=self.run.study,
            kind=Release.Kind.SUMS,
            run=self.run.pk,
            content={
                **(self.content or {}),
                "number": question.number,
                "asked": question.digest(),
                "vector": document.vector,
                "participants": list(question.participants),
                "charges": list(self.costs),
            },
            holders=self.charges.holders,
            charges=self.charges.spent,
            limits=self.charges.limits,
            charge=max(self.bounds),
            acting_user_id=self.run.approved_by_id,
        )
        charged_tell(self.run, self.costs)
        row.answer, row.answer_content = artifact, document.content().decode()
        row.answer_signature, row.answered_at = answer.answer.signature.hex(), timezone.now()
        row.attempt = self.attempt
        row.save(update_fields=["answer", "answer_content", "answer_signature", "answered_at", "attempt"])
        spent = (np.array(self.run.spent) + self.costs).tolist()
        Run.objects.filter(pk=self.run.pk).update(spent=spent, heartbeat=timezone.now())
