"""Client for the iPATE REST API."""

from ipate_client.asynchronous import AsyncSite
from ipate_client.checkpoints import (
    Checkpoint,
    CheckpointError,
    Decision,
    verify_checkpoint,
    verify_consistency,
    verify_decision,
    verify_extension,
    verify_inclusion,
)
from ipate_client.documents import BudgetPlot, Card, Dataset, Plan, Predictions, PublicPoints, Run, Study
from ipate_client.local_model import LocalClassifier, LocalLabeller, LocalModel, LocalRegressor, LocalSurvivalModel
from ipate_client.problems import ProblemError, RowsError, RunEndedError
from ipate_client.site import Site
from ipate_client.version import __version__
from ipate_client.webhooks import SignatureError, signature_verify

__all__ = [
    "AsyncSite",
    "BudgetPlot",
    "Card",
    "Checkpoint",
    "CheckpointError",
    "Dataset",
    "Decision",
    "LocalClassifier",
    "LocalLabeller",
    "LocalModel",
    "LocalRegressor",
    "LocalSurvivalModel",
    "Plan",
    "Predictions",
    "ProblemError",
    "PublicPoints",
    "RowsError",
    "Run",
    "RunEndedError",
    "SignatureError",
    "Site",
    "Study",
    "__version__",
    "signature_verify",
    "verify_checkpoint",
    "verify_consistency",
    "verify_decision",
    "verify_extension",
    "verify_inclusion",
]
