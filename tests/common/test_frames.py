"""Messages between two processes, of which one may have been led astray."""

import io
import json

import numpy as np
import pytest

from common.frames import frame_read, frame_write


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


def test_a_line_without_an_end_is_not_read() -> None:
    stream = io.BytesIO(b"x" * (1 << 20))
    with pytest.raises(EOFError):
        frame_read(stream)
    assert stream.tell() < 1 << 17
