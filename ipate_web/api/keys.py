"""Endpoint of the public keys with which signatures of this site are checked."""

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from common.signing import public_keys
from ipate_web.api.base import ApiView, operation


class KeySerializer(serializers.Serializer):
    """A JSON Web Key (RFC 7517, 8037), and the same as PEM."""

    kty = serializers.CharField()
    crv = serializers.CharField()
    x = serializers.CharField()
    alg = serializers.CharField()
    use = serializers.CharField()
    kid = serializers.CharField(help_text="By which a signature names it.")
    pem = serializers.CharField()


class KeysSerializer(serializers.Serializer):
    keys = KeySerializer(many=True, help_text="The one in use first.")


class KeyList(ApiView):
    """For everybody: whoever gets a model from somebody else has no account here."""

    authentication_classes = ()
    permission_classes = ()

    @operation("Keys of signatures", "labels and models", KeysSerializer)
    def get(self, request: Request) -> Response:
        """The public keys of this site. Signatures of models are JSON Web Signatures with Ed25519."""
        return Response(KeysSerializer({"keys": public_keys()}).data)
