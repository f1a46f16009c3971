"""Invite data holders and write pseudonym, code and link as CSV; the codes cannot be displayed again.

People with an account or a valid invitation are omitted.
"""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from common.spreadsheets import CsvWriter
from consent.management import study_argument, study_by_slug
from consent.people.pseudonyms import COLUMNS, invitees_read, look_alikes_in, look_alikes_text
from consent.services import study_asks_check
from consent.services.invitations import invitations_create, uninvited_holders


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        study_argument(parser)
        parser.add_argument(
            "--pseudonyms",
            type=Path,
            metavar="FILE",
            help=f"one pseudonym per line, or CSV with the columns {', '.join(COLUMNS)}; - for standard input",
        )
        parser.add_argument(
            "--everyone",
            action="store_true",
            help="invite everyone in the data who has neither been invited nor decided",
        )
        parser.add_argument(
            "--open",
            type=int,
            default=0,
            metavar="N",
            help="also create N invitations without pseudonyms",
        )
        parser.add_argument(
            "--replace",
            action="store_true",
            help="issue new codes to people already invited, and revoke the old ones",
        )

        parser.add_argument(
            "--different-people", action="store_true", help="invite even if some new pseudonyms look like others"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        study = study_by_slug(options["study"])
        path: Path | None = options["pseudonyms"]
        if path is None and options["open"] < 1 and not options["everyone"]:
            raise CommandError("Say whom to invite: give --pseudonyms FILE, --everyone, or --open N.")
        try:
            text = (
                "" if path is None else sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8-sig")
            )
            study_asks_check(study)
            people = invitees_read(text)
            groups = look_alikes_in(study, [each.pseudonym for each in people])
            if groups and not options["different_people"]:
                raise CommandError(
                    "No one was invited, because some new pseudonyms look like others: "
                    f"{'; '.join(look_alikes_text(groups))} "
                    "Correct the list, or give --different-people if they are different people."
                )
            everyone = uninvited_holders(study).values_list("pseudonym", flat=True) if options["everyone"] else ()
            issued = invitations_create(
                study=study,
                acting_user=None,
                pseudonyms=[*people, *everyone],
                open_places=max(options["open"], 0),
                replace=options["replace"],
            )
        except OSError as error:
            raise CommandError(
                f"{path} cannot be read: {error.strerror}. Give a file with one pseudonym per line."
            ) from None
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from None
        writer = CsvWriter(self.stdout, lineterminator="\n")
        writer.writerow(["pseudonym", "code", "link"])
        writer.writerows((new.pseudonym, new.code, new.link) for new in issued)
