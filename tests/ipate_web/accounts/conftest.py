"""A mail server that stores the mails it receives, and helpers for people's mails and authenticator apps."""

import re
from collections.abc import Iterator
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from socket import create_server
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value, yield_hotp_counters_from_time
from django.test import Client

from consent.services.mail import mails_deliver
from tests import factories


class Mailbox:
    """A handler that stores received mails, and refuses all while ``refuses`` is set."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.refuses = False

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        if self.refuses:
            return "451 Try again later"
        self.mails.append(message_from_bytes(envelope.content, policy=default))
        return "250 OK"

    def deliver(self) -> list[EmailMessage]:
        """Return the mails of the worker's next delivery."""
        before = len(self.mails)
        mails_deliver()
        return self.mails[before:]


def words(mail: EmailMessage) -> str:
    return mail.get_content().replace("\r\n", "\n")


def subject(mail: EmailMessage) -> str:
    """Return the subject without the leading space of folded ones."""
    return str(mail["Subject"]).strip()


def link_in(mail: EmailMessage) -> str:
    """Return the path of the mail's link."""
    (path,) = re.findall(r"^http://127\.0\.0\.1:8000(/account/\S+/)$", words(mail), re.MULTILINE)
    return path


@pytest.fixture
def mailbox(settings) -> Iterator[Mailbox]:
    """Start a real SMTP server on a free port of this machine, to which the site sends."""
    box = Mailbox()
    with create_server(("127.0.0.1", 0)) as listener:

        class Server(Controller):
            def _create_server(self) -> Any:
                return self.loop.create_server(self._factory_invoker, sock=listener)

        settings.EMAIL_HOST, settings.EMAIL_PORT = listener.getsockname()
        server = Server(box, hostname=settings.EMAIL_HOST, port=settings.EMAIL_PORT, ready_timeout=300)
        server.start()
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        yield box
        server.stop()


def sign_in(client: Client, name: str, password: str = factories.PASSWORD):
    return client.post("/sign-in/", {"login": name, "password": password})


def code_of(secret: str) -> str:
    """Return the code that an authenticator app shows now."""
    return format_hotp_value(hotp_value(secret, next(iter(yield_hotp_counters_from_time()))))
