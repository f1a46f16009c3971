"""Show the forecast, costs and warnings of a draft for a share of every cap, without saving anything."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from accounting.shares import share_check
from common.sentences import in_words
from learning.mechanisms.protocol import PlanError
from training.models import Run
from training.services.forecasts import forecast


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run", help="id of the draft, as in the URL of its page")
        parser.add_argument(
            "--share", type=float, help="share of every holder's cap, above 0 and at most 1; default: a quarter"
        )
        parser.add_argument("--json", action="store_true", help="print the full forecast as JSON")

    def handle(self, *args: Any, run: str, share: float | None, json: bool, **options: Any) -> None:
        try:
            row = Run.objects.select_related("study", "private_dataset", "public_dataset").get(pk=run)
        except (Run.DoesNotExist, ValidationError):
            raise CommandError(f"There is no run {run}. A run's id is part of the URL of its page.") from None
        try:
            if share is not None:
                share_check(share)
            expected = forecast(row, share)
        except PlanError as error:
            raise CommandError(str(error)) from error
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        document = {"run": str(row.pk), "method": row.method, **in_words(expected.to_json())}
        if json:
            self.stdout.write(_dumped(document))
            return
        self.stdout.write(f"{row.title}: {row.get_method_display()}, {100 * expected.share:g} % of every cap")
        for budget, promise in zip(document["budgets"], document["promises"], strict=False):
            self.stdout.write(f"  {promise['name']}: at most μ² = {budget['allowed']:.4g} of {budget['cap']:.4g}")
        for each in document["forecasts"]:
            measure = each["measure"] or "right"
            self.stdout.write(f"  Forecast for the {each['of']}: {measure} {each['low']:.2f} to {each['high']:.2f}")
        for note in document["notes"]:
            self.stdout.write(f"  Note: {note}")


def _dumped(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2)
