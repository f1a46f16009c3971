"""Encryption of what the database keeps and must not tell whoever reads a copy of it."""

import base64

from cryptography.fernet import Fernet, MultiFernet

from common.keys import Purpose, key_derive, keys_of


def cipher(purpose: Purpose, use: str) -> MultiFernet:
    """Cipher for one use of a purpose's keys: encrypts with today's, decrypts with earlier ones, too."""
    return MultiFernet([Fernet(base64.urlsafe_b64encode(key_derive(key, use))) for key in keys_of(purpose)])
