"""What each step of a rotation does to the keys: somebody who is killed between any two files finds something that works."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Callable

import pytest

from remuda.apiserver.keys import rotation_record
from remuda.apiserver.keys.rotation_record import DROPPING, KEEPING, MAKING, SPREADING, SWITCHING, Record, Rotation
from remuda.apiserver.keys.shared_keys import CA_CERTIFICATE, CA_KEY, FILES, KeyMaterial, made
from remuda.kube import certificates
from remuda.kube.certificates import PkiError
from remuda.kube.clock import Entropy, VirtualClock

CLOCK = VirtualClock()
ENTROPY = Entropy(1)
Step = Callable[[KeyMaterial], KeyMaterial]


def steps(kind: str) -> list[KeyMaterial]:
    first = made(CLOCK, ENTROPY)
    added = rotation_record.with_new(first, kind, CLOCK, ENTROPY)
    new = rotation_record.held(added, kind)[-1]
    switched = rotation_record.put_first(added, kind, new)
    return [first, added, switched, rotation_record.with_only(switched, kind, {new})]


@pytest.mark.parametrize("kind", rotation_record.KINDS)
def test_a_new_key_comes_last_is_put_first_and_stays_alone(kind: str) -> None:
    found = [rotation_record.held(each, kind) for each in steps(kind)]
    ((old,), (new,)) = found[0], found[-1]
    assert found == [[old], [old, new], [new, old], [new]]
    others = [other for other in rotation_record.KINDS if other != kind]
    assert all(
        rotation_record.held(each, other) == rotation_record.held(steps_[0], other)
        for steps_ in [steps(kind)]
        for each in steps_
        for other in others
    )


@pytest.mark.parametrize("kind", rotation_record.KINDS)
def test_a_kill_between_two_files_leaves_valid_keys(kind: str) -> None:
    for before, after in itertools.pairwise(steps(kind)):
        for count in range(len(FILES) + 1):
            files = {**before.files(), **{name: after.files()[name] for name in FILES[:count]}}
            found = KeyMaterial.of(files)
            found.check("here")
            # Nothing that is common to both states is lost in between.
            assert set(rotation_record.held(before, kind)) & set(rotation_record.held(after, kind)) <= set(
                rotation_record.held(found, kind)
            )


def test_names_of_encryption_keys_never_come_back() -> None:
    material, seen = made(CLOCK, ENTROPY), set[str]()
    for _ in range(4):
        seen.add(rotation_record.held(material, rotation_record.ENCRYPTION_KEY)[0])
        material = rotation_record.with_new(material, rotation_record.ENCRYPTION_KEY, CLOCK, ENTROPY)
        new = rotation_record.held(material, rotation_record.ENCRYPTION_KEY)[-1]
        assert new not in seen
        material = rotation_record.with_only(material, rotation_record.ENCRYPTION_KEY, {new})


def test_the_bundle_stays_the_same_when_another_ca_begins_to_sign() -> None:
    first, added, switched, _ = steps(rotation_record.CA)
    assert added.ca_certificate == switched.ca_certificate
    # So a checksum of the old one alone is that of what it begins with.
    assert added.ca_certificate.startswith(first.ca_certificate)
    assert certificates.fingerprint(switched.authority().key) != certificates.fingerprint(first.authority().key)


def test_who_trusts_only_the_old_ca_follows_a_chain_to_the_new_one() -> None:
    first, added, switched, last = steps(rotation_record.CA)
    chains = [certificates.chain_of(each.ca_certificate, each.ca_key, CLOCK, ENTROPY) for each in (first, added, switched, last)]
    assert [bool(each) for each in chains] == [False, False, True, False]
    (crossed,) = certificates.parse_certificates(chains[2])
    crossed.verify_directly_issued_by(first.authority().certificate)
    assert certificates.fingerprint(crossed) == certificates.fingerprint(switched.authority().certificate)
    ssl.create_default_context(cadata=switched.ca_certificate.decode())


def test_a_ca_that_ends_soon_is_renewed_among_the_others() -> None:
    material = rotation_record.with_new(made(CLOCK, ENTROPY), rotation_record.CA, CLOCK, ENTROPY)
    old, new = rotation_record.held(material, rotation_record.CA)
    later = VirtualClock(CLOCK.time() + certificates.CA_SECONDS - certificates.RENEW_BEFORE + 1)
    renewed = material.renewed(later, ENTROPY)
    assert renewed is not None
    assert rotation_record.held(renewed, rotation_record.CA) == [old, new]
    assert renewed.authority().certificate.subject == material.authority().certificate.subject


def test_the_keys_follow_what_the_store_says() -> None:
    first, added, switched, last = steps(rotation_record.ENCRYPTION_KEY)
    old, new = "key1", "key2"

    def at(stage: str, **fields: str) -> Record:
        return rotation_record.with_rotation(Record(), rotation_record.ENCRYPTION_KEY, Rotation(stage, (old,), 0.0, **fields))

    assert rotation_record.arranged(first, at(MAKING)) == first
    assert rotation_record.arranged(added, at(SPREADING, new=new)) == added
    for stage in (SWITCHING, KEEPING):
        assert rotation_record.arranged(added, at(stage, new=new)) == switched
    dropping = at(DROPPING, new=new)
    assert rotation_record.arranged(added, dropping) == last
    # Also for a server that was away meanwhile.
    assert rotation_record.arranged(added, rotation_record.without(dropping, rotation_record.ENCRYPTION_KEY, 1.0)) == last
    with pytest.raises(PkiError, match="is not among the keys here"):
        rotation_record.arranged(first, at(SWITCHING, new=new))


def test_a_key_that_was_made_too_late_goes() -> None:
    """Two servers may make one at the same time; the store takes one of them."""
    first, added, *_ = steps(rotation_record.CA)
    both = rotation_record.with_new(added, rotation_record.CA, CLOCK, ENTROPY)
    (old,), (_, new, late) = rotation_record.held(first, rotation_record.CA), rotation_record.held(both, rotation_record.CA)
    told = rotation_record.with_rotation(Record(), rotation_record.CA, Rotation(SPREADING, (old,), 0.0, new=new))
    assert late not in rotation_record.held(rotation_record.arranged(both, told), rotation_record.CA)
    # One that has not come here yet is no reason to forget one's own.
    assert rotation_record.arranged(first, told) == first


def test_files_of_two_authorities_that_do_not_belong_together_are_told() -> None:
    files = made(CLOCK, ENTROPY).files()
    with pytest.raises(PkiError, match="do not belong together"):
        KeyMaterial.of({**files, CA_KEY: made(CLOCK, ENTROPY).ca_key}).check("here")
    with pytest.raises(PkiError, match="is not a certificate"):
        KeyMaterial.of({**files, CA_CERTIFICATE: b"nothing"}).check("here")
