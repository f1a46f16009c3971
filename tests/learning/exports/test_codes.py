"""Columns of several codes in a graph, beside the schema's own encoding."""

import numpy as np
import onnxruntime
import pytest

from learning.exports.encoding import encoded
from learning.exports.graph import BOOL, FLOAT, Graph
from learning.formats import DataError, TabularSchema
from learning.formats.columns import CodeColumn


@pytest.mark.parametrize("missing", [(), ("",), ("?", "n.a."), ("", "?")])
@pytest.mark.parametrize(
    ("system", "first", "second", "third"),
    [
        ("icd9", "250.83", "V45", "E812"),
        ("icd10", "E11.90", "I50", "C7A.0"),
        ("loinc", "2345-7", "99999-9", "718-7"),
        ("atc", "A10BA02", "C07", "V"),
    ],
)
def test_a_graph_reads_several_codes_as_the_schema_does(system, first, second, third, missing):
    schema = TabularSchema((CodeColumn("d", system, missing, several=True),), ("a", "b"))
    graph = Graph()
    x, sound = encoded(graph, schema)
    content = graph.to_bytes({"x": (x, FLOAT, ("width",)), "sound": (sound, BOOL, ())}, {})
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    values = [first, f"{first};{second}", f" {first} ; {second};{third};", f"{first};;{second}", f"\t{first}", ""]
    values += [";", " ; ", "?", "n.a.", f"?;{first}", f"{first}; ?", "?;?", f"{first};xx", "xx", f"{first},{second}"]
    found, allowed = session.run(None, {"d": np.array(values, object)})
    for value, record, is_allowed in zip(values, found, allowed, strict=True):
        try:
            wanted = schema.columns[0].encode([value])[0]
        except DataError:
            assert not is_allowed, value
        else:
            assert is_allowed and (record == wanted).all(), value


def test_unknown_values_are_not_spelled_like_codes():
    with pytest.raises(DataError, match="spelled like a code"):
        CodeColumn("d", "icd10", ("U00",), several=True)
