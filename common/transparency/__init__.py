"""Merkle trees and signed checkpoints in the forms of RFC 9162 and C2SP; imports no Django."""
