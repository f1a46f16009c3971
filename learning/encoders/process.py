"""Encoder in a separate process with limited memory and time, because its file is not trusted."""

from __future__ import annotations

import json
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.confinement import ConfinedProcess, frame_read, frame_write, scratch_folder
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.encoders.files import EncoderError, EncoderFile, ImageInput, Input

MEMORY = 6 << 30
"""Memory in bytes that the process may use in addition to its programs."""
START_TIME = 120.0
"""Maximum time in seconds for reading a file."""
RECORD_TIME = 30.0
"""Maximum processor time in seconds for a record."""
PATIENCE = 5.0
"""Largest ratio of a block's elapsed time on a busy machine to its time limit; beyond it, the process is considered
stuck.
"""
MOST_NUMBERS = 1 << 16
"""Largest number of components of a vector."""
BLOCK = 32
_SMALLER = _("Choose a smaller encoder, or export it for smaller inputs.")


class EncoderProcess:
    """A running encoder, as a context manager.

    Args:
        shape: Shape of one record: an image, or the bytes of a text.
        memory: Memory in bytes that the process may use in addition to its programs.
        record_time: Maximum processor time in seconds for a record.

    Raises:
        EncoderError: Raised on entry if the file cannot be used, or needs too much memory or time.
    """

    def __init__(
        self, encoder: EncoderFile, shape: tuple[int, ...], *, memory: int = MEMORY, record_time: float = RECORD_TIME
    ) -> None:
        self._encoder, self._shape, self._memory, self._record_time = encoder, shape, memory, record_time
        self._running = ExitStack()
        self.width = 0

    def __enter__(self) -> EncoderProcess:
        self._start()
        return self

    def _start(self) -> None:
        about = {
            "takes": self._encoder.takes.to_json(),
            "shape": list(self._shape),
            "memory": self._memory,
            "record_time": self._record_time,
            "tokenizer": self._encoder.tokenizer,
        }
        with scratch_folder() as folder, self._running:
            (folder / "about.json").write_text(json.dumps(about), "utf-8")
            (folder / "encoder.onnx").write_bytes(self._encoder.content)
            self._process = self._running.enter_context(ConfinedProcess("learning.encoders", str(folder)))
            answer, _array = self._answer(START_TIME)
            if "problem" in answer:
                raise EncoderError(*(_sentence(answer[name]) for name in ("problem", "remedy")))
            self.width = int(answer["width"])
            if not 1 <= self.width <= MOST_NUMBERS:
                problem = Sentence(_("The encoder's vectors have %(width)s numbers."), width=self.width)
                raise EncoderError(
                    problem,
                    Sentence(
                        _("Choose an encoder whose vectors have 1 to %(most)s numbers."), most=f"{MOST_NUMBERS:,}"
                    ),
                )
            self._running = self._running.pop_all()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    def encode(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return vectors `(n, width)` of records `(n, *shape)`, each computed separately on one thread.

        The vector of a record is zero if the encoder fails on it, takes too long, or returns a number that is not
        finite.

        Raises:
            EncoderError: The process ended and cannot be restarted.
        """
        vectors = np.zeros((len(x), self.width), np.float32)
        for start in range(0, len(x), BLOCK):
            places = range(start, min(start + BLOCK, len(x)))
            block = self._encoded(x[places.start : places.stop])
            if block is not None:
                vectors[places.start : places.stop] = block
                continue
            for place in places:  # one of these records ended the process; the others can still be encoded
                alone = self._encoded(x[place : place + 1])
                if alone is not None:
                    vectors[place] = alone[0]
        return vectors

    def check_locality(self, x: NDArray[Any]) -> None:
        """Check that records have the same vectors, to the last bit, when encoded in another order or one by one.

        Raises:
            EncoderError: The vectors differ.
        """
        together = self.encode(x).tobytes()
        turned = self.encode(x[::-1])[::-1].tobytes()
        alone = b"".join(self.encode(x[place : place + 1]).tobytes() for place in range(len(x)))
        if not together == turned == alone:
            problem = _("A record's vector depends on which other records are encoded with it.")
            raise EncoderError(
                problem, _("Use an encoder without randomness, exported for inference instead of training.")
            )

    def _encoded(self, block: NDArray[Any]) -> NDArray[Any] | None:
        """Return the vectors of a block. If the block ends the process, start a new process and return None."""
        size, seconds = len(block) * self.width * 4, PATIENCE * (START_TIME + self._record_time * len(block))
        try:
            frame_write(self._process.stdin, block)
            _message, array = self._answer(seconds, most=size)
            if array is not None and array.shape == (len(block), self.width):
                return array
        except (OSError, EncoderError):
            pass
        width = self.width
        self._running.close()
        self._start()
        if self.width != width:
            raise _died()
        return None

    def _answer(self, seconds: float, most: int = 0) -> tuple[dict[str, Any], NDArray[Any] | None]:
        """Return the process's next message, with an array of at most ``most`` bytes."""
        try:
            with self._process.within(seconds):
                return frame_read(self._process.stdout, most=most)
        except (ValueError, EOFError):
            raise _died() from None


def sample_of(takes: Input, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return artificial records `(n, *shape)` for testing an encoder.

    >>> sample_of(ImageInput(4, (0.5,), (0.5,)), (8, 8)).shape
    (4, 8, 8)
    """
    if isinstance(takes, ImageInput):
        noise = np.random.default_rng(0).integers(0, 256, (2, *shape), dtype=np.uint8)
        return np.concatenate([np.zeros((1, *shape), np.uint8), np.full((1, *shape), 255, np.uint8), noise])
    words = "The quick brown fox, an unbelievably tall one, jumped over 12 lazy dogs; größer als früher! 你好 "
    texts = ["", words, words[::-1], words * (shape[0] // len(words) + 1)]
    return np.stack([np.frombuffer(_filled(text, shape[0]), np.uint8) for text in texts])


def _filled(text: str, length: int) -> bytes:
    return text.encode()[:length].decode(errors="ignore").encode().ljust(length, b"\0")


def _died() -> EncoderError:
    return EncoderError(_("The encoder took too much memory or time, or crashed."), _SMALLER)


def _sentence(document: Any) -> str:
    return Sentence.from_json(document) if isinstance(document, dict) else str(document)
