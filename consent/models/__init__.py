"""Models of the consent app, ordered so that each refers only to earlier models."""

# ruff: noqa: I001 Django registers the tables in this order, so pages and verify_ledger list the chains in this order.
# A module imports only from the modules above it.
from consent.models.recorded import Recorded, recorded_models
from consent.models.studies import AfterWithdrawal, Afterwards, LawfulBasis, Study, study_lock
from consent.models.chains import (
    ChainHead,
    Change,
    ConfigurationChange,
    InstallationHead,
    SealedChange,
    StudyChained,
)
from consent.models.roles import Membership, Role, RoleChange
from consent.models.consent_forms import ConsentForm, ConsentFormDraft, ConsentFormProposal, Renewal, Validity
from consent.models.policies import ConflictOfInterest, EpsilonPolicy, EpsilonPolicyApproval, Level, Remark
from consent.models.holders import AUTHORITIES, Answerer, Authority, Circumstance, DataHolder
from consent.models.decisions import AnswerDraft, CheckAnswers, ConsentEvent, DecisionCount, LevelAccess
from consent.models.invitations import Invitation, Letter, Letterhead, LinkReissue
from consent.models.addresses import HolderAddress, Mail, MailWishes, News, WebhookDelivery, WebhookEndpoint
from consent.models.disposals import Disposal
from consent.models.installation import AccountChange, Administrator, Checkpoint
