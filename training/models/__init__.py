"""Datasets, runs and their results. Arrays are kept in private storage (see :mod:`common.artifacts`)."""

from training.alliances.models import Alliance, AllianceSite, JointAnswer, JointQuestion, JointRun
from training.models.datasets import Dataset, DatasetImport, Encoder, Encoding
from training.models.published import RunResult, StudentModel, StudentTraining
from training.models.runs import Batch, ProposalChange, Query, Round, Run, Shard, TeacherChunk, Verification, WorkerTime

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
