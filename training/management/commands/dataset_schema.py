"""Print the JSON Schema of dataset schemas, for editors and other programs (docs/dataset.schema.json)."""

import json
from typing import Any

from django.core.management.base import BaseCommand

from learning.formats import json_schema


class Command(BaseCommand):
    help = __doc__
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(json.dumps(json_schema(), indent=2, ensure_ascii=False))
