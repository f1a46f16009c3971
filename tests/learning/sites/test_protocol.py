"""A joint run: the actions of hub and sites, and every lie and mishap that they refuse."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common.noise import SimulationNoise
from learning.sites.documents import (
    AllianceDocument,
    AnswerDocument,
    Approval,
    Document,
    Endorsement,
    QuestionDocument,
    Refused,
    RunDocument,
    Signed,
    public_key,
    sign,
)
from learning.sites.protocol import SiteAnswer, answer, endorse, lattice_of, roster_of, total, total_spread
from tests.draws import NoNoise
from tests.learning.sites.alliances import HUB, Joint, Mode

SUMS = [np.arange(6).reshape(2, 3) * factor for factor in (1, -5, 70)]


@pytest.fixture
def joint() -> Joint:
    return Joint(3)


def endorsed(joint: Joint, question: QuestionDocument, by: int = 3) -> list[Signed[Endorsement]]:
    return [sign(Endorsement(question.digest(), site.name), site.identity) for site in joint.sites[:by]]


def answered(joint: Joint, question: QuestionDocument, endorsements: list[Signed[Endorsement]], **change: Any) -> Any:
    """Return the first site's answer to ``question``, with these endorsements."""
    sums, noise = change.get("sums", SUMS[0]), change.get("noise", SimulationNoise(0))
    return answer(joint.sites[0], joint.roster, question, endorsements, sums, noise, joint.ledgers["site-00"])


@pytest.mark.parametrize("mode", ["together", "separate"])
def test_the_total_of_all_is_their_sum_and_one_vector_alone_reveals_nothing_where_masked(mode: Mode) -> None:
    joint = Joint(3, mode=mode)
    question = joint.question()
    made, lattice = joint.answers(question, SUMS, NoNoise), lattice_of(joint.roster, question)
    assert np.array_equal(total(joint.roster, question, made), np.sum(SUMS, axis=0))
    for each, sums in zip(made, SUMS, strict=True):
        units = np.frombuffer(each.vector, "<u8").reshape(2, 3)
        if mode == "together":
            assert (units != lattice.encode(sums, 3)).all()
        else:
            assert np.array_equal(lattice.decode(units), sums)
    second = joint.total(joint.question(2), SUMS)
    assert second.shape == (2, 3) and not np.array_equal(second, np.sum(SUMS, axis=0)), "noise is added"


def test_the_remaining_sites_go_on_with_another_question() -> None:
    joint = Joint(4)
    first = joint.question(1)
    made = joint.answers(first, [*SUMS, SUMS[0]], NoNoise)
    with pytest.raises(Refused, match="Not every participant sent exactly one"):
        total(joint.roster, first, made[:3])
    left = joint.question(2, participants=first.participants[:3])
    assert np.array_equal(joint.total(left, SUMS, NoNoise), np.sum(SUMS, axis=0))
    assert lattice_of(joint.roster, left).spread > lattice_of(joint.roster, first).spread, "each adds more noise"


def test_noise_of_all_but_t_sites_is_what_people_are_charged_by() -> None:
    for count, colluding in ((3, 1), (5, 1), (20, 4), (5, 0)):
        joint = Joint(count, colluding=colluding)
        own = lattice_of(joint.roster, joint.question(spread=7.0)).spread
        assert own * np.sqrt(count - colluding) == pytest.approx(7.0)
        assert total_spread(joint.roster, joint.question(spread=7.0)) == pytest.approx(own * np.sqrt(count))
    separate = Joint(5, mode="separate")
    assert lattice_of(separate.roster, separate.question(spread=7.0)).spread == 7.0
    assert total_spread(separate.roster, separate.question(spread=7.0)) == pytest.approx(7.0 * np.sqrt(5))


def test_a_run_needs_its_hub_its_alliance_and_the_approval_of_exactly_its_participants(joint: Joint) -> None:
    made, other = joint.approvals, Joint(3, number="2f")
    forged = sign(made[2].document, joint.sites[0].identity)
    for approvals, message in (
        (made[:2], "Approval from site-02 is missing"),
        ([*made, made[0]], "more than one approval from site-00"),
        ([*made[:2], other.approvals[2]], "site-02's approval belongs to a different run"),
        ([*made[:2], forged], "signature of site-02 on this approval"),
    ):
        with pytest.raises(Refused, match=message):
            roster_of(joint.alliance, joint.run, approvals)
    with pytest.raises(Refused, match="signature of the hub on this run"):
        roster_of(joint.alliance, sign(joint.run.document, joint.sites[0].identity), made)
    with pytest.raises(Refused, match="a different alliance"):
        roster_of(replace(joint.alliance, terms="other terms"), joint.run, made)
    with pytest.raises(Refused, match="The alliance is invalid: the number of sites that"):
        Joint(3, colluding=-1)  # the total noise would be less than people are charged for


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ("01", "at least 3 are needed"),
        ("019", "site-09 cannot take"),
        ("102", "in the right order"),
        ("001", "named twice"),
    ],
)
def test_lists_that_no_run_may_have(joint: Joint, places: str, message: str) -> None:
    names = tuple(f"site-0{place}" for place in places)
    run = sign(replace(joint.run.document, participants=names), HUB)
    with pytest.raises(Refused, match=message):
        roster_of(joint.alliance, run, [site.approval(run.document) for site in joint.sites])
    question = joint.question(participants=names)
    site = joint.sites[0]
    with pytest.raises(Refused, match=message):
        endorse(site, joint.roster, sign(question, HUB), question, joint.ledgers[site.name])


@pytest.mark.parametrize(
    "change",
    [{"question": "other"}, {"part": (0, 2)}, {"state": "other"}, {"spread": 49.0}, {"grain": 0.5}, {"number": 7}],
)
def test_a_site_endorses_only_expected_questions(joint: Joint, change: dict[str, Any]) -> None:
    site, own = joint.sites[0], joint.question()
    with pytest.raises(Refused, match=f"something different from what was approved .*{next(iter(change))}"):
        endorse(site, joint.roster, sign(replace(own, **change), HUB), own, joint.ledgers[site.name])


def test_a_question_of_somebody_else_or_of_another_run_is_refused(joint: Joint) -> None:
    site, own, ledger = joint.sites[0], joint.question(), joint.ledgers["site-00"]
    other, without = Joint(3, number="2f").question(), joint.question(participants=("site-01", "site-02"))
    # A site gives different keys to different sites, or a hub passes on different approvals.
    key = site.agreement.public_key().public_bytes_raw().hex()
    approval = sign(Approval(joint.run.document.digest(), "site-02", key), joint.sites[2].identity)
    differing = roster_of(joint.alliance, joint.run, [*joint.approvals[:2], approval])
    for roster, question, signer, message in (
        (joint.roster, own, joint.sites[1].identity, "signature of the hub on this question"),
        (joint.roster, other, HUB, "a different run"),
        (joint.roster, without, HUB, "at least 3"),
        (differing, own, HUB, "a different list"),
    ):
        with pytest.raises(Refused, match=message):
            endorse(site, roster, sign(question, signer), question, ledger)
    with pytest.raises(Refused, match="a different run"):
        answered(joint, other, endorsed(joint, other))
    four = Joint(4)
    others = four.question(participants=("site-01", "site-02", "site-03"))
    with pytest.raises(Refused, match="site-00 was not asked"):
        answered(four, others, endorsed(four, others, by=4)[1:])


def test_a_question_is_answered_when_all_have_endorsed_it_and_once(joint: Joint) -> None:
    question = joint.question(2)
    made, other = endorsed(joint, question), endorsed(joint, joint.question(2, state="another state"))
    for endorsements, message in (
        (made[:2], "exactly one endorsement"),
        ([*made[:2], made[0]], "exactly one endorsement"),
        ([*made[:2], sign(Endorsement(question.digest(), "site-02"), HUB)], "signature of site-02 on this endorsem"),
        ([made[0], *other[1:]], "site-01 was asked a different question"),  # a hub that asks each site something else
    ):
        with pytest.raises(Refused, match=message):
            answered(joint, question, endorsements)
    assert joint.ledgers["site-00"].last(joint.roster.digest()) == 0, "nothing was charged"
    answered(joint, question, made)
    for number in (2, 1):
        again = joint.question(number)
        with pytest.raises(Refused, match="answered only once"):
            answered(joint, again, endorsed(joint, again))
        with pytest.raises(Refused, match="answered only once"):
            endorse(joint.sites[0], joint.roster, sign(again, HUB), again, joint.ledgers["site-00"])
    answered(joint, joint.question(3), endorsed(joint, joint.question(3)))


def test_exactly_the_committed_answers_are_sent(joint: Joint) -> None:
    """A second worker of the same site was faster: the ledger decides, and no vector is sent."""
    question, ledger = joint.question(), joint.ledgers["site-00"]
    large = joint.question(spread=0.5)
    with pytest.raises(Refused, match="fewer people"):
        answered(joint, large, endorsed(joint, large), sums=np.array([2**60]))
    assert ledger.last(large.roster) == 0

    class Slow(SimulationNoise):
        def rounded_normal(self, scale: float, shape: Any) -> np.ndarray:
            ledger.commit(question, None)  # type: ignore[arg-type]
            return super().rounded_normal(scale, shape)

    with pytest.raises(Refused, match="answered"):
        answered(joint, question, endorsed(joint, question), noise=Slow(1))


def test_the_hub_decodes_only_the_total_of_all_sites(joint: Joint) -> None:
    """It decodes neither fewer answers nor answers to other questions, nor changed numbers."""
    question, run = joint.question(1), Joint(3, number="2f")
    made, later = joint.answers(question, SUMS), joint.answers(joint.question(2), SUMS)
    replayed, last = run.answers(run.question(1), SUMS)[2], made[2]
    document = replace(last.answer.document, shape=(6,))
    reshaped = replace(last, answer=sign(document, joint.sites[2].identity))
    stranger = SiteAnswer(sign(AnswerDocument(question.digest(), "site-09", (2, 3), ""), HUB), b"")
    for answers, message in (
        (made[:2], "exactly one answer"),
        ([*made, made[0]], "exactly one answer"),
        ([made[0], *made[:2]], "exactly one answer"),
        ([*made[:2], later[2]], "site-02 has answered a different question"),
        ([*made[:2], replayed], "site-02 has answered a different question"),
        ([*made[:2], replace(last, vector=bytes(48))], "are not the ones that it signed"),
        ([*made[:2], replace(last, answer=Signed(document, last.answer.signature))], "signature of site-02 on this"),
        ([*made[:2], reshaped], "site-02's answer has a different shape"),
        ([*made[:2], stranger], "site-09 was not asked"),
    ):
        with pytest.raises(Refused, match=message):
            total(joint.roster, question, answers)


DOCUMENTS: list[Document] = [
    AllianceDocument("hôpitaux", "00", 1, "aa", {"b": "bb", "a": "cc"}),
    RunDocument("00", "1f", "11", "together", ("a", "b", "c")),
    Approval("00", "a", "aa"),
    QuestionDocument("00", 3, "11", (0, 5), "22", ("a", "b"), 0.1, 2.0**-16),
    Endorsement("00", "a"),
    AnswerDocument("00", "a", (3, 4), "11"),
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: each.kind)
def test_documents_come_back_from_their_bytes_and_from_no_others(document: Document) -> None:
    content = document.content()
    assert type(document).read(content) == document
    assert type(document).read(content).digest() == document.digest()
    for wrong in (content + b" ", content.replace(b'":', b'": ', 1), content.replace(b"-1 ", b"-2 "), b"", b"x\n{}"):
        with pytest.raises(Refused, match="The hub and the sites need the same version"):
            type(document).read(wrong)


def test_canonical_bytes_are_those_of_the_protocol() -> None:
    """Other implementations must get the same; change this only with the protocol's version."""
    assert DOCUMENTS[0].content() == (
        b'ipate-sites-1 alliance\n{"colluding":1,"hub":"aa","name":"h\\u00f4pitaux","sites":{"a":"cc","b":"bb"},'
        b'"terms":"00"}'
    )
    assert DOCUMENTS[3].content() == (
        b'ipate-sites-1 question\n{"grain":1.52587890625e-05,"number":3,"part":[0,5],"participants":["a","b"],'
        b'"question":"11","roster":"00","spread":0.1,"state":"22"}'
    )
    digests = {each.digest() for each in DOCUMENTS}
    assert len(digests) == len(DOCUMENTS)


def test_keys_and_signatures_are_those_of_rfc_8032() -> None:
    """The public key is that of section 7.1, test 1. With another key, a signature is refused."""
    private = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(private))
    assert public_key(key) == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    signed = sign(DOCUMENTS[4], key)
    assert signed.checked(public_key(key), "it") == DOCUMENTS[4]
    for wrong in (public_key(HUB), "00", "no key"):
        with pytest.raises(Refused, match="Compare the key fingerprints"):
            signed.checked(wrong, "it")
