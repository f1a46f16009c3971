"""Numbers that sites send: exactness, masks and noise, compared with published test vectors."""

import hashlib
import hmac
import struct
from itertools import combinations, pairwise

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from mpmath import mp

from accounting.caps import DRAWS
from accounting.privacy import available_delta
from common.noise import GRID, JOINT_NORMAL_DISTANCE, LARGEST_ROUNDED_SCALE, SimulationNoise, SystemNoise
from learning.sites.documents import Refused
from learning.sites.lattice import IncludedNoise, Lattice, keystream, mask, pair_key
from tests.learning.sites.alliances import Joint


def test_the_unit_is_as_fine_as_noise_can_be_drawn() -> None:
    for spread, grain in ((0.1, 1.0), (2.0**17, 1.0), (2.0**30, 1.0), (0.5, GRID), (16384.0, GRID)):
        lattice = Lattice.finest(spread, grain)
        units = spread / grain * 2**lattice.shift
        assert LARGEST_ROUNDED_SCALE / 2 <= units <= LARGEST_ROUNDED_SCALE and lattice.shift >= 0


@pytest.mark.parametrize("grain", [1.0, GRID])
@pytest.mark.parametrize("sites", [1, 3, 20])
def test_sums_are_decoded_bit_for_bit(grain: float, sites: int) -> None:
    lattice, rng = Lattice.finest(40.0, grain), np.random.default_rng(1)
    most = int(lattice.most(sites) / grain)
    grains = rng.integers(-most, most, (sites, 200), endpoint=True)
    grains[:, :2] = most, -most
    sums = grains if grain == 1 else grains * grain
    total = np.sum([lattice.encode(each, sites) for each in sums], axis=0, dtype=np.uint64)
    decoded = lattice.decode(total)
    assert decoded.dtype == sums.dtype
    assert decoded.tolist() == sums.sum(axis=0).tolist()


def test_sums_that_could_overflow_or_were_rounded_are_refused() -> None:
    lattice = Lattice.finest(40.0, GRID)
    with pytest.raises(Refused, match="more noise or fewer people"):
        lattice.encode(np.array([2 * lattice.most(5)]), 5)
    for wrong in (GRID / 2, np.nan):
        with pytest.raises(Refused, match="not whole multiples"):
            lattice.encode(np.array([wrong]), 5)
    with pytest.raises(Refused, match="less noise"):
        Lattice.finest(2.0**35, 1.0)
    assert Lattice.finest(0.5, GRID).most(20) > 10**6, "people, and little noise"


def test_a_total_is_rounded_after_the_noise() -> None:
    lattice = Lattice.finest(2.0**31, 1.0)
    assert lattice.shift == 2
    total = np.array([-6, -5, -2, -1, 1, 2, 5, 6, 7], np.int64).view(np.uint64)
    assert lattice.decode(total).tolist() == [-1, -1, 0, 0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("noise", [SystemNoise(), SimulationNoise(1)], ids=["system", "simulation"])
@pytest.mark.statistical
def test_a_site_has_noise_of_its_own_spread(noise: SystemNoise | SimulationNoise) -> None:
    lattice = Lattice.finest(3.0, GRID)
    drawn = lattice.noise(noise, 20_000).view(np.int64) * GRID / 2.0**lattice.shift
    assert drawn.std() == pytest.approx(3.0, rel=5 / np.sqrt(2 * 20_000))
    assert abs(drawn.mean()) < 5 * 3.0 / np.sqrt(20_000)


def test_a_total_with_noise_gets_no_other_and_only_once() -> None:
    included = IncludedNoise(5.0)
    with pytest.raises(Refused, match=r"needs noise of 5\.1"):
        included.normal(5.1, 2)
    assert not included.rounded_normal(5.0, (2, 3)).any()
    with pytest.raises(Refused, match="single noisy sum"):
        included.normal(5.0, 2)
    with pytest.raises(Refused, match="aggregator"):
        IncludedNoise(5.0).laplace(5.0, 2)


def rounded(scale: float, reach: int, cells: int = 1) -> list[mp.mpf]:
    """Return the probabilities of -reach to reach for a normal plus ``cells`` - 1 uniforms, rounded once.

    They are differences of antiderivatives of the normal's distribution function, one more for each uniform number.
    """

    def antiderivative(z: mp.mpf) -> mp.mpf:
        cdf, pdf = mp.ncdf(z), mp.npdf(z)
        return [cdf, z * cdf + pdf, ((z**2 + 1) * cdf + z * pdf) / 2, ((z**3 + 3 * z) * cdf + (z**2 + 2) * pdf) / 6][
            cells - 1
        ]

    half, width = mp.mpf(cells) / 2, mp.mpf(scale)
    edges = [
        width ** (cells - 1) * antiderivative((place - half) / width) for place in range(-reach, reach + cells + 1)
    ]
    for _ in range(cells):
        edges = [above - below for below, above in pairwise(edges)]
    return edges


def distance(scale: float, count: int) -> mp.mpf:
    """Return the total variation between a sum of rounded normals and one normal plus uniforms, rounded once."""
    one = rounded(scale, int(9 * scale) + 2)
    several = one
    for _ in range(count - 1):
        wide = [mp.mpf(0)] * (len(several) + len(one) - 1)
        for i, a in enumerate(several):
            for j, b in enumerate(one):
                wide[i + j] += a * b
        several = wide
    single = rounded(scale * mp.sqrt(count), (len(several) - 1) // 2, count)
    return mp.fsum(abs(a - b) for a, b in zip(several, single, strict=True)) / 2


@pytest.mark.parametrize(("scale", "count"), [(1.0, 2), (1.0, 4), (2.0, 3)])
def test_several_rounded_normals_are_one_with_other_noise_rounded_once(scale: float, count: int) -> None:
    """Up to terms with two different shifts of a transform, each below e^(-π²s²), it is the Gaussian mechanism."""
    with mp.workdps(40):
        assert distance(scale, count) < count * mp.exp(-((mp.pi * scale) ** 2))


def test_the_reserve_of_delta_covers_a_million_sites() -> None:
    least = LARGEST_ROUNDED_SCALE / 2
    with mp.workdps(40):
        assert 10**6 * (mp.mpf(2) ** -256 + mp.exp(-((mp.pi * least) ** 2))) < JOINT_NORMAL_DISTANCE
    assert available_delta(1e-5, 24.0, draws=DRAWS, distance=JOINT_NORMAL_DISTANCE) == 1e-5


# RFC 7748, section 6.1
ALICE = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
ALICE_PUBLIC = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
BOB = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"
BOB_PUBLIC = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
SHARED = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
# RFC 8439, appendix A.1, vectors 1 and 2: key and nonce of zeros, blocks 0 and 1
STREAM = (
    "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
    "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
)


def key_of(private: str) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(bytes.fromhex(private))


def hkdf(secret: bytes, info: bytes, size: int, salt: bytes = bytes(32)) -> bytes:
    """RFC 5869, implemented again."""
    pseudorandom, block, made = hmac.digest(salt, secret, "sha256"), b"", b""
    for counter in range(1, 256):
        block = hmac.digest(pseudorandom, block + info + bytes([counter]), "sha256")
        made += block
    return made[:size]


def chacha20(key: bytes, words: int) -> list[int]:
    """RFC 8439, section 2.3, implemented again: nonce 0, 64-bit numbers."""

    def turn(x: list[int], a: int, b: int, c: int, d: int) -> None:
        for to, by, other, left in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[to] = (x[to] + x[by]) & 0xFFFFFFFF
            mixed = x[other] ^ x[to]
            x[other] = ((mixed << left) | (mixed >> (32 - left))) & 0xFFFFFFFF

    stream = b""
    for counter in range(-(-words // 8)):
        begin = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), counter, 0, 0, 0]
        state = list(begin)
        for _ in range(10):
            for place in range(4):
                turn(state, place, 4 + place, 8 + place, 12 + place)
            for place in range(4):
                turn(state, place, 4 + (place + 1) % 4, 8 + (place + 2) % 4, 12 + (place + 3) % 4)
        stream += struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(state, begin, strict=True)))
    return list(struct.unpack(f"<{words}Q", stream[: 8 * words]))


def test_keys_of_a_pair_agree_with_rfc_7748_and_rfc_5869() -> None:
    assert hkdf(bytes([11] * 22), bytes(range(0xF0, 0xFA)), 42, bytes(range(13))).hex() == (
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    ), "RFC 5869, test case 1"
    assert key_of(ALICE).public_key().public_bytes_raw().hex() == ALICE_PUBLIC
    assert key_of(BOB).public_key().public_bytes_raw().hex() == BOB_PUBLIC
    expected = hkdf(bytes.fromhex(SHARED), b"what it is for", 32)
    assert pair_key(key_of(ALICE), BOB_PUBLIC, b"what it is for") == expected
    assert pair_key(key_of(BOB), ALICE_PUBLIC, b"what it is for") == expected
    assert pair_key(key_of(BOB), ALICE_PUBLIC, b"something else") != expected


def test_the_stream_is_that_of_rfc_8439() -> None:
    expected = np.frombuffer(bytes.fromhex(STREAM), "<u8")
    assert keystream(bytes(32), 16).tolist() == expected.tolist() == chacha20(bytes(32), 16)
    key = hashlib.sha256(b"another key").digest()
    assert keystream(key, 21).tolist() == chacha20(key, 21)


def test_a_public_key_that_gives_no_secret_is_refused() -> None:
    for key in ("00" * 32, "01" + "00" * 31, "00" * 31, "no key"):
        with pytest.raises(Refused, match="The site has to approve the run again"):
            pair_key(key_of(ALICE), key, b"")


def test_a_mask_is_made_of_the_streams_of_all_pairs() -> None:
    """Other implementations of a site must get the same; change this only with the protocol's version."""
    joint = Joint(4)
    question = joint.question()
    expected = [[0] * 10 for _ in joint.sites]
    for a, b in combinations(range(4), 2):
        one, other = joint.sites[a], joint.sites[b]
        secret = one.agreement.exchange(other.agreement.public_key())
        info = (b'["ipate-sites-1","mask","%s","%s",["site-00","site-01","site-02","site-03"],["%s","%s"]]') % tuple(
            each.encode() for each in (joint.roster.digest(), question.digest(), one.name, other.name)
        )
        stream = chacha20(hkdf(secret, info, 32), 10)
        expected[a] = [(x + y) % 2**64 for x, y in zip(expected[a], stream, strict=True)]
        expected[b] = [(x - y) % 2**64 for x, y in zip(expected[b], stream, strict=True)]
    masks = [mask(site.name, site.agreement, joint.roster, question, 10) for site in joint.sites]
    assert [each.tolist() for each in masks] == expected
    assert not np.sum(masks, axis=0, dtype=np.uint64).any(), "they cancel"
    assert np.sum(masks[:3], axis=0, dtype=np.uint64).all(), "and do not without one of them"


def test_no_two_questions_have_the_same_mask() -> None:
    joint, again = Joint(3, colluding=0), Joint(3, colluding=0, number="another run")
    site, changes = joint.sites[0], ({}, {"number": 2}, {"question": "other"}, {"state": "other"})
    asked = [(joint.roster, joint.question(**change)) for change in changes]
    asked += [(joint.roster, joint.question(participants=("site-00", "site-01"))), (again.roster, again.question())]
    masks = [mask(site.name, site.agreement, roster, question, 100) for roster, question in asked]
    for one, other in combinations(masks, 2):
        assert not (one == other).any()


@pytest.mark.statistical
def test_masked_numbers_look_random() -> None:
    """Half of the values of each bit are 1, for any input; noise alone would not change the high bits."""
    joint = Joint(3)
    (made, *_) = joint.answers(joint.question(), [np.zeros(20_000, np.int64)] * 3)
    bits = np.unpackbits(np.frombuffer(made.vector, np.uint8)).reshape(-1, 64)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(20_000)


def test_masks_of_fixed_keys_have_these_digests() -> None:
    """Other implementations of a site must get the same; change this only with the protocol's version."""
    joint = Joint(3)
    masks = [mask(site.name, site.agreement, joint.roster, joint.question(), 1000) for site in joint.sites]
    digests = [hashlib.sha256(each.astype("<u8").tobytes()).hexdigest()[:16] for each in masks]
    assert digests == ["08338fd4a0dd0843", "2ff8ba3f75124af6", "3611efd9b67bcb09"]
