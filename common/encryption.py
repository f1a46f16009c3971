"""Encryption of what the database keeps and must not tell whoever reads a copy of it."""

import base64
import hashlib

from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings


def cipher(purpose: str) -> MultiFernet:
    """Cipher for one purpose: encrypts with a key that follows from the secret key, decrypts with earlier ones, too."""
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    derived = (hashlib.sha256(f"ipate.{purpose}:{key}".encode()).digest() for key in keys)
    return MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in derived])
