"""Signatures that others check, times in words, progress of commands, threads, and reading untrusted input."""

import base64
import io
import json
import struct
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import jwt
import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from django.core.exceptions import ImproperlyConfigured
from django.template import Context, Template, TemplateSyntaxError, engines
from django.utils import timezone, translation
from threadpoolctl import threadpool_info, threadpool_limits

from common import backoff, progress
from common.backoff import Backoff, pause_after, retry_after_seconds
from common.confinement import frame_read, frame_write
from common.keys import public_keys, signed
from common.moments import moment_words
from common.progress import progress_bar
from common.reading import UnreadableError, document_parse, picture_redraw, table_read, table_read_named
from common.templatetags.components import COMPONENTS, component_render, components_read
from learning.libraries import one_thread

CONTENT = {"model": "a", "files": [{"sha256": "0"}]}


def checked(statement: str, key: dict[str, str]) -> None:
    """Check a signature independently of the library that signs."""
    head, content, proof = statement.split(".")
    public = load_pem_public_key(key["pem"].encode())
    assert isinstance(public, Ed25519PublicKey)
    public.verify(base64.urlsafe_b64decode(proof + "=="), f"{head}.{content}".encode())


def test_the_public_key_shows_who_signed_what() -> None:
    [key] = public_keys()
    statement = signed(CONTENT)
    checked(statement, key)
    assert jwt.decode(statement, jwt.PyJWK.from_dict(key).key, algorithms=["EdDSA"]) == CONTENT
    assert jwt.get_unverified_header(statement)["kid"] == key["kid"]
    head, _, proof = statement.split(".")
    forged = base64.urlsafe_b64encode(b'{"model":"b"}').rstrip(b"=").decode()
    with pytest.raises(InvalidSignature):
        checked(f"{head}.{forged}.{proof}", key)


def test_old_signatures_verify_after_a_new_secret_key(settings: Any) -> None:
    before, [old] = signed(CONTENT), public_keys()
    assert signed(CONTENT) == before
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another" * 10
    new, fallback = public_keys()
    assert fallback == old and new["kid"] != old["kid"]
    checked(before, fallback)
    checked(signed(CONTENT), new)


def test_the_public_key_does_not_reveal_the_secret(settings: Any) -> None:
    message = str(public_keys()) + signed(CONTENT)
    assert settings.SECRET_KEY not in message and '"d"' not in message


@pytest.mark.parametrize(
    ("language", "zone", "words"),
    [
        ("en", "UTC", "23 November 2026, 19:02 (UTC)"),
        ("en", "Europe/Berlin", "23 November 2026, 20:02 (CET)"),
        ("de", "Europe/Berlin", "23. November 2026 um 20:02 Uhr (MEZ)"),
        ("de", "Europe/Berlin", "1. Juli 2026 um 12:00 Uhr (MESZ)"),
    ],
)
def test_a_moment_names_its_zone(language: str, zone: str, words: str) -> None:
    """German times say “Uhr”, and summer time has a separate name."""
    with translation.override(language), timezone.override(ZoneInfo(zone)):
        moment = datetime(2026, *((7, 1, 10) if "Juli" in words else (11, 23, 19, 2)), tzinfo=UTC)
        assert moment_words(moment) == words


def test_a_log_gets_a_few_whole_lines(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    list(progress_bar(range(10_000), desc="counting"))
    assert len(capfd.readouterr().err.splitlines()) <= 2
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    assert list(progress_bar(range(4), desc="counting", unit=" rows")) == [0, 1, 2, 3]
    output = capfd.readouterr().err
    lines = output.splitlines()
    assert "\r" not in output and lines[0].startswith("counting:   0%")
    assert lines[-1].startswith("counting: 100%") and "4/4" in lines[-1]


def threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info()}


def test_libraries_compute_in_one_thread_until_the_context_ends() -> None:
    np.linalg.inv(np.eye(2))
    with threadpool_limits(2):
        before = threads()
        with one_thread():
            assert threads() == {1}
        assert threads() == before == {2}


def test_a_table_is_read_row_by_row_with_its_lines() -> None:
    assert list(table_read('a,b\n"x\ny",2\n')) == [(1, ["a", "b"]), (3, ["x\ny", "2"])]
    named = list(table_read_named("\na;b\n1;2\n\n3\n4;5;6\n", delimiter=";"))
    assert [tuple(row.values()) for _line, row in named] == [("a", "b"), ("1", "2"), ("3", ""), ("4", "5")]
    assert [line for line, _row in named] == [2, 3, 5, 6] and list(named[0][1]) == ["a", "b"]
    assert list(table_read_named("")) == []


def test_json_documents_are_parsed_or_refused_with_a_reason() -> None:
    assert document_parse('{"a": [1, null, "ü"]}') == {"a": [1, None, "ü"]}
    for content, reason in ((b"{", "line 1 column 2"), (b"\xff\xfe\xff", "decode"), (b"[" * 200_000, "too deep")):
        with pytest.raises(UnreadableError, match=reason):
            document_parse(content)


@pytest.mark.exhaustive
def test_excessive_content_ends_only_its_own_process(settings: Any) -> None:
    settings.READER_MEMORY = 50
    with pytest.raises(UnreadableError, match="memory"):
        document_parse("[" + "[]," * 3_000_000 + "[]]")
    settings.READER_MEMORY, settings.READER_SECONDS = 4000, 1
    with pytest.raises(UnreadableError, match="too long"):
        document_parse("[" + "[]," * 12_000_000 + "[]]")


def test_a_picture_that_unpacks_to_more_than_it_says_is_refused() -> None:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 6, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(10_000_000)))
    with pytest.raises(UnreadableError):
        picture_redraw(bomb, most_pixels=1_600, pixels=600)


def test_a_message_is_read_as_written() -> None:
    stream = io.BytesIO()
    frame_write(stream, np.arange(6, dtype=np.float32).reshape(2, 3), word="x")
    frame_write(stream, width=3)
    stream.seek(0)
    result, array = frame_read(stream, most=24)
    assert result["word"] == "x" and array is not None and array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert frame_read(stream) == ({"width": 3}, None)
    with pytest.raises(EOFError):
        frame_read(stream)


@pytest.mark.parametrize("shape", [[7], [1 << 40], [-1, 6], [-1, -1]])
def test_an_unexpected_array_is_not_read(shape: list[int]) -> None:
    line = json.dumps({"shape": shape, "type": "float32"}).encode() + b"\n"
    with pytest.raises((ValueError, EOFError)):
        frame_read(io.BytesIO(line + bytes(28)), most=24 if shape != [-1, -1] else 0)
    stream = io.BytesIO(b"x" * (1 << 20))
    with pytest.raises(EOFError):
        frame_read(stream)
    assert stream.tell() < 1 << 17


def test_pauses_double_are_never_shorter_than_asked_for_and_end_with_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000_000.0
    monkeypatch.setattr(backoff.time, "time", lambda: now)
    asked = {"7": 7, " 0 ": 0, "Sun, 09 Sep 2001 01:47:10 GMT": 30, "Sun, 09 Sep 2001 01:46:00 GMT": 0}
    invalid = ["", "-1", "1.5", "soon", "²", "Sun, 99 Sep 2001 01:47:10 GMT"]
    assert {header: retry_after_seconds(header) for header in asked} == asked
    assert {retry_after_seconds(each) for each in [None, *invalid]} == {0}
    for failures, header, least in (
        *[(1, None, 1), (2, "0", 2), (4, "", 8), (5, "x", 10), (5_000, None, 10)],
        *[(1, "7", 7), (4, "7", 8), (1, "40", 40), (1, "9" * 400, 60), (5, "Sun, 09 Sep 2001 01:47:10 GMT", 30)],
    ):
        pauses = {pause_after(failures, least=1, most=10, retry_after=header, most_asked=60) for _ in range(20)}
        assert least <= min(pauses) and max(pauses) <= 1.25 * least and len(pauses) > 1, (failures, header)

    monkeypatch.setattr(backoff.time, "monotonic", lambda: now)
    pause = Backoff(1, most=10, most_asked=60)
    assert pause.seconds_left == 0
    pause.failed("40")
    assert 40 <= pause.seconds_left <= 50
    pause.succeeded()
    assert pause.seconds_left == 0
    pause.failed()
    assert 1 <= pause.seconds_left <= 1.25


def render(text: str, **context: object) -> str:
    return "".join(Template(text).render(Context(context)).split("\n"))


def test_a_component_is_a_tag_with_positional_named_and_default_arguments() -> None:
    assert render('{% badge "new" %}') == '<span class="badge">new</span>'
    assert render("{% badge word kind=look %}", word="<b>", look="good") == (
        '<span class="badge badge-good">&lt;b&gt;</span>'
    )
    assert component_render("badge", text="new", unknown=1).strip() == '<span class="badge">new</span>'


@pytest.mark.parametrize("use", ["{% badge %}", '{% badge "new" colour="red" %}', '{% badge "new" "good" "?" %}'])
def test_a_missing_or_unknown_argument_is_an_error_before_anything_is_rendered(use: str) -> None:
    with pytest.raises(TemplateSyntaxError):
        Template("{% if never %}" + use + "{% endif %}")


def test_a_component_sees_its_arguments_and_nothing_else_of_the_page() -> None:
    assert "warn" not in render('{% badge "new" %}', kind="warn")


def test_the_place_where_a_component_is_defined_shows_nothing() -> None:
    file = COMPONENTS["badge"].file
    assert engines["django"].get_template(file).render().strip() == ""


@pytest.mark.parametrize(
    "text",
    [
        "{% component twice %}{% endcomponent %}{% component twice %}{% endcomponent %}",
        '{% component late a="" b %}{% endcomponent %}',
    ],
)
def test_a_name_is_defined_once_and_required_parameters_come_first(tmp_path: Path, text: str) -> None:
    (tmp_path / "parts.html").write_text(text)
    with pytest.raises(ImproperlyConfigured, match=r"parts\.html"):
        components_read(tmp_path)


def test_no_component_has_the_name_of_another_tag() -> None:
    builtins = engines["django"].engine.template_builtins
    others = {name for library in builtins if "component" not in library.tags for name in library.tags}
    between = {"else", "elif", "empty", "plural"}
    assert COMPONENTS.keys() & (others | between) == set()
