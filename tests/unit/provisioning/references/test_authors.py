"""The record of who wrote which reference."""

from __future__ import annotations

from typing import Any

from remuda.kube.authorization.users import User
from remuda.provisioning.references import AUTHORS, SpecReference, references_of
from remuda.provisioning.references.authors import AuthorLedger, read, rewritten, seal, text_of

Obj = dict[str, Any]

ONE, TWO = User("u-one", "uid", ("g",), {"extra": ["x"]}), User("u-two")


def references(*names: str) -> tuple[SpecReference, ...]:
    pools = [{"name": each, "cloudCredentialSecretName": each} for each in names]
    return references_of({"metadata": {"namespace": "fleet"}, "spec": {"rkeConfig": {"machinePools": pools}}})


def kept(ledger: AuthorLedger) -> AuthorLedger:
    return read({"metadata": {"annotations": {AUTHORS: text_of(ledger)}}})


def test_it_is_read_as_it_was_written() -> None:
    first = rewritten(AuthorLedger(), references("a", "b"), (), ONE, "")
    ledger = kept(rewritten(first, references("a", "b", "c"), references("a", "b"), TWO, "7"))
    assert [(entry.author.name, entry.since) for each in "abc" for entry in ledger.of(references(each))] == [
        ("u-one", ""),
        ("u-one", ""),
        ("u-two", "7"),
    ]
    assert ledger.of(references("a"))[0].author.groups == ("g",)


def test_an_edit_elsewhere_changes_no_author() -> None:
    first = rewritten(AuthorLedger(), references("a"), (), ONE, "")
    assert rewritten(first, references("a"), references("a"), TWO, "7") == first


def test_a_reference_that_was_there_before_the_record_has_none() -> None:
    assert rewritten(AuthorLedger(), references("a"), references("a"), ONE, "7") == AuthorLedger()
    assert text_of(AuthorLedger()) == ""


def test_a_reference_that_is_taken_out_and_written_again_is_another_one() -> None:
    first = rewritten(AuthorLedger(), references("a"), (), ONE, "1")
    without = rewritten(first, (), references("a"), ONE, "2")
    again = rewritten(without, references("a"), (), ONE, "3")
    assert without == AuthorLedger() and seal(first.of(references("a"))) != seal(again.of(references("a")))


def test_what_is_accepted_is_another_one_too() -> None:
    named = references("a", "b")
    first = rewritten(AuthorLedger(), named, (), ONE, "1")
    accepted = rewritten(first, named, named, TWO, "2", accepted=references("a"))
    assert [entry.author.name for entry in accepted.of(named)] == ["u-two", "u-one"]


def test_another_field_with_the_same_name_has_its_own_author() -> None:
    pools = references("a")
    spec: Obj = {"cloudCredentialSecretName": "a", "rkeConfig": {"machinePools": [{"cloudCredentialSecretName": "a"}]}}
    both = references_of({"metadata": {"namespace": "fleet"}, "spec": spec})
    ledger = rewritten(rewritten(AuthorLedger(), pools, (), ONE, ""), both, pools, TWO, "7")
    assert {each.key for each in both} == {pools[0].key}
    assert sorted(entry.author.name for entry in ledger.of(both)) == ["u-one", "u-two"]


def test_a_record_that_can_not_be_read_is_none() -> None:
    for text in ("", "x", "[]", '{"authors":[]}', '{"authors":[],"written":[{"author":1,"since":"","references":["a"]}]}'):
        assert read({"metadata": {"annotations": {AUTHORS: text}}}) == AuthorLedger()


def test_a_thousand_references_fit_into_an_annotation() -> None:
    ledger = rewritten(AuthorLedger(), references(*(f"{'n' * 240}-{each}" for each in range(2000))), (), ONE, "")
    assert len(text_of(ledger)) < 100_000
