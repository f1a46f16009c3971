"""Form in which an encoder is registered."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.utils.translation import gettext_lazy as _

from common.reading import UnreadableError, document_parse
from ipate_web.staff.forms.imports import MOST_MB
from learning.encoders.files import FIRST, LARGEST_SIDE, LAST, MOST_TOKENS


class EncoderForm(forms.Form):
    """Form for the file of an encoder, what it takes, and the statement about it."""

    file = forms.FileField(label=_("ONNX file"), help_text=_("Up to 200 MB, with its weights inside."))
    name = forms.CharField(label=_("Name"), max_length=100)
    kind = forms.ChoiceField(label=_("It takes"), choices=[("image", _("images")), ("text", _("texts"))])
    size = forms.IntegerField(
        label=_("Side of the images in pixels"),
        required=False,
        min_value=4,
        max_value=LARGEST_SIDE,
        help_text=_("Images are brought to this size first."),
    )
    mean = forms.CharField(
        label=_("Mean"), required=False, help_text=_("Of pixels between 0 and 1, one for each colour: 0.5 0.5 0.5.")
    )
    spread = forms.CharField(label=_("Spread"), required=False, help_text=_("What pixels are divided by, as the mean."))
    layout = forms.ChoiceField(
        label=_("Layout"),
        required=False,
        choices=[(FIRST, _("colours first (n, 3, height, width)")), (LAST, _("colours last (n, height, width, 3)"))],
    )
    length = forms.IntegerField(
        label=_("Tokens of a piece of text"),
        required=False,
        min_value=4,
        max_value=MOST_TOKENS,
        help_text=_("Longer texts are read in pieces, of which the mean counts."),
    )
    tokenizer = forms.FileField(
        label=_("Tokenizer"), required=False, help_text=_("Of texts: the file tokenizer.json of the network.")
    )
    licence = forms.CharField(label=_("Licence"), max_length=200, help_text=_("Such as Apache-2.0."))
    source = forms.CharField(
        label=_("Where it comes from"),
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=_("And on which data it was made. The model card says it."),
    )
    stated = forms.BooleanField(
        label=_("I state: The encoder was made without the private data of this study."), required=False
    )

    of_images = ("size", "mean", "spread", "layout")
    of_texts = ("length", "tokenizer")

    def clean_file(self) -> bytes:
        return _content(self.cleaned_data["file"])

    def clean_tokenizer(self) -> str:
        file = self.cleaned_data["tokenizer"]
        try:
            text = _content(file).decode() if file else ""
            if text:
                document_parse(text)
        except (UnicodeDecodeError, UnreadableError):
            raise ValidationError(_("This is no JSON file: give tokenizer.json.")) from None
        return text

    def clean_mean(self) -> list[float]:
        return _numbers(self.cleaned_data["mean"])

    def clean_spread(self) -> list[float]:
        return _numbers(self.cleaned_data["spread"])

    def arguments(self) -> dict[str, Any]:
        """Arguments of ``encoder_register``; the form is valid."""
        data = self.cleaned_data
        names = self.of_images if data["kind"] == "image" else ("length",)
        fields = {name: data[name] for name in ("name", "tokenizer", "licence", "source", "stated")}
        return fields | {
            "content": data["file"],
            "takes": {"kind": data["kind"], **{name: data[name] for name in names}},
        }


def _content(file: UploadedFile) -> bytes:
    if (file.size or 0) > MOST_MB << 20:
        raise ValidationError(_("The file is larger than %(most)d MB.") % {"most": MOST_MB})
    return file.read()


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.replace(";", " ").split()]
    except ValueError:
        raise ValidationError(_("Write numbers with a point, separated by blanks.")) from None
