"""Datasets, runs and what they leave behind. Arrays live in private storage; see :mod:`common.artifacts`."""

from training.alliances.models import Alliance, AllianceSite, JointAnswer, JointQuestion, JointRun
from training.models.datasets import Dataset
from training.models.encoders import Encoder, Encoding
from training.models.imports import DatasetImport
from training.models.parts import Shard, TeacherChunk, WorkerTime
from training.models.releases import Batch, Query, Round
from training.models.results import RunResult
from training.models.runs import ProposalChange, Run
from training.models.students import StudentModel, StudentTraining
from training.models.verifications import Verification

__all__ = [
    "Alliance",
    "AllianceSite",
    "Batch",
    "Dataset",
    "DatasetImport",
    "Encoder",
    "Encoding",
    "JointAnswer",
    "JointQuestion",
    "JointRun",
    "ProposalChange",
    "Query",
    "Round",
    "Run",
    "RunResult",
    "Shard",
    "StudentModel",
    "StudentTraining",
    "TeacherChunk",
    "Verification",
    "WorkerTime",
]
