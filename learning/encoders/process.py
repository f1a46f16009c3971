"""An encoder in a process of its own: it reads a file that somebody sent, with limits on its memory and its time."""

from __future__ import annotations

import json
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.confinement import ConfinedProcess
from common.frames import frame_read, frame_write
from common.scratch import scratch_folder
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.encoders.files import EncoderError, EncoderFile

MEMORY = 6 << 30
"""Bytes that the process may take beyond those of its programs."""
START_TIME = 120.0
"""Seconds until a file has to be read."""
RECORD_TIME = 30.0
"""Seconds that a record may take."""
MOST_NUMBERS = 1 << 16
"""Numbers that a vector may have."""
BLOCK = 32
_SMALLER = _("Choose a smaller encoder, or export it for smaller inputs.")


class EncoderProcess:
    """A running encoder, as a context manager.

    Args:
        encoder: The file.
        shape: Of a record: of an image, or the bytes of a text.
        memory: Bytes that the process may take beyond those of its programs.
        record_time: Seconds that a record may take.

    Attributes:
        width: Of a vector.

    Raises:
        EncoderError: On entering, if the file cannot be used, or takes too much memory or time.
    """

    def __init__(
        self, encoder: EncoderFile, shape: tuple[int, ...], *, memory: int = MEMORY, record_time: float = RECORD_TIME
    ) -> None:
        self._encoder, self._shape, self._memory, self._record_time = encoder, shape, memory, record_time
        self._running = ExitStack()
        self.width = 0

    def __enter__(self) -> EncoderProcess:
        about = {
            "takes": self._encoder.takes.to_json(),
            "shape": list(self._shape),
            "memory": self._memory,
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
                problem = Sentence(_("The vectors of the encoder have %(width)s numbers."), width=self.width)
                raise EncoderError(problem, Sentence(_("Choose one with 1 to %(most)s."), most=f"{MOST_NUMBERS:,}"))
            self._running = self._running.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    def encode(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Vectors `(n, width)` of records `(n, *shape)`, each computed by itself on one thread.

        A record that cannot be encoded has a vector of zeros.
        """
        vectors = np.empty((len(x), self.width), np.float32)
        for start in range(0, len(x), BLOCK):
            block = x[start : start + BLOCK]
            try:
                frame_write(self._process.stdin, block)
            except OSError:
                raise _died() from None
            block_vectors = vectors[start : start + BLOCK]
            _message, array = self._answer(self._record_time * len(block), most=block_vectors.nbytes)
            if array is None or array.shape != block_vectors.shape:
                raise _died()
            block_vectors[:] = array
        return vectors

    def _answer(self, seconds: float, most: int = 0) -> tuple[dict[str, Any], NDArray[Any] | None]:
        """What the process says next, with an array of at most so many bytes."""
        try:
            with self._process.within(seconds):
                return frame_read(self._process.stdout, most=most)
        except (ValueError, EOFError):
            raise _died() from None


def _died() -> EncoderError:
    return EncoderError(_("The encoder took too much memory or time, or crashed."), _SMALLER)


def _sentence(document: Any) -> str:
    return Sentence.from_json(document) if isinstance(document, dict) else str(document)
