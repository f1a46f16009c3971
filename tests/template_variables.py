"""Find template variables that nobody passes, for example after a renaming; Django shows them as empty."""

from collections import defaultdict
from pathlib import Path

import pytest
from django.conf import settings
from django.template import engines
from django.template.base import FilterExpression, Parser, Variable, VariableDoesNotExist

TEMPLATES = settings.BASE_DIR / "templates"
#: Template and variable → whether it was found, for each lookup.
Lookups = dict[tuple[str, str], set[bool]]

#: Variables without a value on the pages of the tour of the German site, which does not reach the necessary state.
UNSEEN = {
    "429.html": "minutes",
    "account/email_confirm.html": "another",
    "consent/check.html": "declaration.errors",
    "home.html": "queue.waiting",
    "mfa/index.html": "authenticators.webauthn",
    "staff/alliances/take.html": "proposal.sites",
    "staff/datasets/dataset.html": "dataset.schema.target",
    "staff/datasets/import.html": "first.image import.schema.target row.image",
    "staff/policies/affordable.html": "forecasts plan_error",
    "staff/policies/odds.html": "problems",
    "staff/runs/parts.html": "evaluation.measures student.card.evaluation.measures",
    "staff/runs/run.html": "doubts",
    "staff/runs/steps.html": "plan.rounds.0.marginals plan.rounds.1.plan",
    "staff/runs/student.html": "student.card.balance student.card.evaluation.likeliest student.card.target "
    "student.card.threshold",
    "staff/runs/student_results.html": "evaluation.measures student.card.balance",
    "staff/runs/versions.html": "version.reference.measures",
    "staff/runs/votes.html": "round.representation",
}


class Recorded(Variable):
    """A variable that records whether it was found."""

    known: set[bool]

    def resolve(self, context):
        try:
            value = super().resolve(context)
        except VariableDoesNotExist:
            self.known.add(False)
            raise
        self.known.add(True)
        return value


def lookups_recorded(monkeypatch: pytest.MonkeyPatch) -> Lookups:
    """Record all lookups of variables of the site's templates from now on, and return them."""
    genuine, known = FilterExpression.__init__, defaultdict(set)

    def compiled(expression: FilterExpression, token: str, parser: Parser) -> None:
        genuine(expression, token, parser)
        file = Path(str(parser.origin))
        if expression.is_var and file.is_relative_to(TEMPLATES):
            expression.var = Recorded(expression.var.var)
            expression.var.known = known[str(file.relative_to(TEMPLATES)), expression.var.var]

    monkeypatch.setattr(FilterExpression, "__init__", compiled)
    for loader in engines["django"].engine.template_loaders:
        loader.reset()
    return known


def never_given(lookups: Lookups) -> dict[str, str]:
    """Return the variables that were looked up, but never found, by template."""
    missing: dict[str, list[str]] = {}
    for file, name in sorted(place for place, known in lookups.items() if known == {False}):
        missing.setdefault(file, []).append(name)
    return {file: " ".join(names) for file, names in missing.items()}
