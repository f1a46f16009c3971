"""Datasets, runs and their results. Arrays are kept in private storage (see :mod:`common.artifacts`)."""

from training.alliances.models import Alliance, AllianceSite, JointAnswer, JointQuestion, JointRun
from training.models.datasets import Dataset, DatasetImport, Encoder, Encoding
from training.models.published import RunResult, StudentModel, StudentTraining
from training.models.runs import Batch, ProposalChange, Query, Round, Run, Shard, TeacherChunk, Verification, WorkerTime
