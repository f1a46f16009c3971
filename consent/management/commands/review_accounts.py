"""List staff accounts after a restore, which may have reopened closed accounts or restored roles that had been removed.

With --reviewed, the log continues from the current state, and verify_ledger no longer reports a fault.
"""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from consent.services.accounts import accounts_review, staff


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--reviewed", action="store_true", help="confirm that all accounts are correct")
        parser.add_argument("--user", help="your user name, which is recorded; required with --reviewed")

    def handle(self, *args: Any, reviewed: bool, user: str | None, **options: Any) -> None:
        for person in staff():
            may = [
                word
                for word, holds in (
                    ("closed", not person.is_active),
                    ("superuser", person.is_superuser),
                    ("site administration", person.is_staff),
                    ("administrator", hasattr(person, "administrator")),
                )
                if holds
            ]
            self.stdout.write(f"{person.username}: {', '.join(may) or 'only roles in studies'}")
        if not reviewed:
            return
        acting_user = User.objects.filter(username=user, is_active=True).first()
        if acting_user is None:
            raise CommandError("Name your own account with --user NAME. It will be recorded.")
        missing = accounts_review(acting_user=acting_user)
        self.stdout.write(f"{missing} changes were lost. The review by {acting_user} was recorded.")
