"""Print the record of the decision with this receipt number.

Compare it with the receipt that the holder shows. The exit status is 1 if there is no such decision, or if the record
was changed after it was written.
"""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from consent.documents.receipts import receipt_digests, receipt_event, receipt_facts, receipt_sentence
from consent.models import ConsentEvent
from consent.services.checkpoints import checkpoint_covering, proof_of


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("number", help="the receipt number (64 hexadecimal digits), or its short code")

        parser.add_argument(
            "--proof",
            type=Path,
            metavar="FILE",
            help="write the proof that the last signed checkpoint covers the decision (holders can download it, too)",
        )

    def handle(self, *args: Any, number: str, proof: Path | None, **options: Any) -> None:
        event = receipt_event("".join(number.split()).lower())
        if event is None:
            raise CommandError(
                "No decision has this receipt number. Check each digit. If the signing key has changed in the "
                "meantime, add the earlier key to IPATE_SIGNING_KEY_FALLBACKS."
            )
        self.stdout.write(receipt_sentence(event))
        for term, value in [*receipt_facts(event), *receipt_digests(event)]:
            self.stdout.write(f"{term}: {value}")
        if event.computed_hash() != event.hash:
            raise CommandError(
                "The record was changed after it was written. Leave the database unchanged and run verify_ledger."
            )
        self.stdout.write(
            f"Decision {event.sequence} of study “{event.study.slug}” is unchanged. To check the whole chain, run "
            "verify_ledger."
        )
        if proof is not None:
            self._prove(event, proof)

    def _prove(self, event: ConsentEvent, path: Path) -> None:
        checkpoint = checkpoint_covering(event)
        if checkpoint is None:
            raise CommandError(
                "No checkpoint has been signed since this decision, or a worker still has to prepare proofs."
            )
        path.write_text(json.dumps(proof_of(event, checkpoint), ensure_ascii=False, indent=2) + "\n")
        self.stdout.write(
            f"{path} proves that checkpoint {checkpoint.number} of {checkpoint.day} covers this decision."
        )
