"""Encoder process, which reads blocks of records from its input and writes their vectors to its output.

Each block is encoded in a forked copy of the process, which then exits. If the copy fails, every record of the block is
encoded in a separate copy. Whether a record fails therefore does not depend on memory left behind by other records, and
a slow record does not delay others.
"""

from __future__ import annotations

import gc
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from common.confinement import answers, confine, frame_read, frame_write, in_a_copy
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.encoders.files import EncoderError, EncoderFile, ImageInput, Pieces, input_from_json
from learning.encoders.graphs import IDS, MASK, image_vectors, text_vectors, token_inputs
from learning.exports.graph import FLOAT, Graph
from learning.formats.columns import texts
from learning.formats.rows import as_numbers

_VECTORS, _IMAGE = "vectors", "image"
Encode = Callable[[NDArray[Any]], NDArray[np.float32]]


def main(folder: Path) -> None:
    """Read the encoder, report the length of its vectors, and encode blocks until the input ends."""
    requests, replies = sys.stdin.buffer, answers()
    about = json.loads((folder / "about.json").read_text("utf-8"))
    confine(memory=about["memory"], reads=[folder])
    try:
        takes, shape = input_from_json(about["takes"]), tuple(about["shape"])
        encoder = EncoderFile((folder / "encoder.onnx").read_bytes(), takes, about["tokenizer"])
        encode = _encode(encoder, shape)
        record = np.zeros((1, *shape), np.uint8)
        width = len(encode(record))
    except EncoderError as error:
        frame_write(replies, problem=_kept(error.problem), remedy=_kept(error.remedy))
        return
    except Exception as error:  # onnxruntime raises many types of exceptions
        problem = Sentence(_("The network does not run (%(error)s)."), error=str(error)[:200])
        frame_write(
            replies, problem=_kept(problem), remedy=_("Check the network with onnxruntime, and export it again.")
        )
        return
    frame_write(replies, width=width)
    gc.freeze()  # a garbage collection in a copy would write to all of its memory
    while True:
        try:
            _header, block = frame_read(requests, most=sys.maxsize)
        except EOFError:
            return
        assert block is not None, "nothing else is asked"
        vectors = _vectors(encode, block, width, about["record_time"])
        if vectors is None:  # one record failed; encode the others without it
            alone = [_vectors(encode, record[None], width, about["record_time"]) for record in block]
            vectors = np.stack([np.zeros(width, np.float32) if each is None else each[0] for each in alone])
        frame_write(replies, vectors)


def _vectors(encode: Encode, block: NDArray[Any], width: int, seconds: float) -> NDArray[np.float32] | None:
    """Return the vectors `(n, width)` of records, computed in a copy of this process; None if the copy fails.

    Args:
        seconds: Processor time allowed for each record.
    """

    def vectors() -> bytes:
        found = np.zeros((len(block), width), np.float32)
        for vector, record in zip(found, block[:, None], strict=True):
            signal.setitimer(signal.ITIMER_PROF, seconds)
            vector[:] = encode(record)
        return found.tobytes()

    content = in_a_copy(vectors, seconds=seconds * len(block))
    if content is None or len(content) != 4 * len(block) * width:
        return None
    found = np.frombuffer(content, np.float32).reshape(len(block), width)
    return np.where(np.isfinite(found).all(axis=1, keepdims=True), found, np.float32(0))


def _encode(encoder: EncoderFile, shape: tuple[int, ...]) -> Encode:
    graph = Graph()
    if isinstance(encoder.takes, ImageInput):
        vectors = image_vectors(graph, encoder, graph.input(_IMAGE, FLOAT, shape), shape)
    else:
        pieces = Pieces(encoder.tokenizer, encoder.takes.length)
        vectors = text_vectors(graph, encoder, *token_inputs(graph))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    content = graph.to_bytes({_VECTORS: (vectors, FLOAT, ("width",))}, {})
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def inputs(record: NDArray[Any]) -> dict[str, NDArray[Any]]:
        if isinstance(encoder.takes, ImageInput):
            return {_IMAGE: np.asarray(as_numbers(record), np.float32)}
        ids, mask = pieces(texts(record)[0])
        return {IDS: ids, MASK: mask}

    return lambda record: session.run(None, inputs(record))[0][0]


def _kept(sentence: str) -> Any:
    return sentence.to_json() if isinstance(sentence, Sentence) else sentence


if __name__ == "__main__":
    main(Path(sys.argv[1]))
