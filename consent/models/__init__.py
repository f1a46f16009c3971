"""Models of the consent app, one module for each thing that is stored."""

# ruff: noqa: I001
# Not in the order of the alphabet: in this one Django registers the tables, pages and verify_ledger list the chains.
# A module imports only from those before it, and from actors.
from consent.models.recorded import Recorded, recorded_models
from consent.models.studies import AfterWithdrawal, Afterwards, LawfulBasis, Study
from consent.models.chains import ChainHead, InstallationChained, InstallationHead, StudyChained
from consent.models.changes import Change, ConfigurationChange, SealedChange
from consent.models.roles import Membership, RoleChange
from consent.models.consent_forms import ConsentForm, ConsentFormDraft, ConsentFormProposal, Renewal, Validity
from consent.models.policies import EpsilonPolicy, EpsilonPolicyApproval, Level
from consent.models.remarks import Remark
from consent.models.conflicts import ConflictOfInterest
from consent.models.holders import DataHolder
from consent.models.answer_drafts import AnswerDraft
from consent.models.check_answers import CheckAnswers
from consent.models.circumstances import AUTHORITIES, Answerer, Authority, Circumstance
from consent.models.decisions import ConsentEvent, DecisionCount
from consent.models.accesses import LevelAccess
from consent.models.invitations import Invitation, LinkReissue
from consent.models.letterheads import Letterhead
from consent.models.addresses import HolderAddress
from consent.models.mails import Mail, MailWishes
from consent.models.letters import Letter
from consent.models.news import News
from consent.models.webhooks import WebhookDelivery, WebhookEndpoint
from consent.models.disposals import Disposal
from consent.models.checkpoints import Checkpoint
from consent.models.accounts import AccountChange, Administrator
from consent.role_rules import Role

__all__ = [
    "AUTHORITIES",
    "AccountChange",
    "Administrator",
    "AfterWithdrawal",
    "Afterwards",
    "AnswerDraft",
    "Answerer",
    "Authority",
    "ChainHead",
    "Change",
    "CheckAnswers",
    "Checkpoint",
    "Circumstance",
    "ConfigurationChange",
    "ConflictOfInterest",
    "ConsentEvent",
    "ConsentForm",
    "ConsentFormDraft",
    "ConsentFormProposal",
    "DataHolder",
    "DecisionCount",
    "Disposal",
    "EpsilonPolicy",
    "EpsilonPolicyApproval",
    "HolderAddress",
    "InstallationChained",
    "InstallationHead",
    "Invitation",
    "LawfulBasis",
    "Letter",
    "Letterhead",
    "Level",
    "LevelAccess",
    "LinkReissue",
    "Mail",
    "MailWishes",
    "Membership",
    "News",
    "Recorded",
    "Remark",
    "Renewal",
    "Role",
    "RoleChange",
    "SealedChange",
    "Study",
    "StudyChained",
    "Validity",
    "WebhookDelivery",
    "WebhookEndpoint",
    "recorded_models",
]
