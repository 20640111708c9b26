"""Approvals that are signed on another machine: what is asked there, the answer, and the approvers' keys. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from payments_async._values.frozen import field, frozen
from payments_async.journal._approvals import Proposal, Signature

if TYPE_CHECKING:
    from types import ModuleType

T = TypeVar("T")
_KIND = "payments-async approval 1"  # is signed too: no signature of another purpose counts
_MOST = 10_000_000  # bytes of a request or an answer
_DIGITS, _FAR = 100, 1e11  # of a sum; seconds since 1970, some thousands of years
_NO_LIBRARY = "signed approvals need the extra: pip install 'payments-async[signing]'"


class _Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A proposal, as it leaves its machine: all but where its file lies there."""

    kind: str
    digest: str
    batch_id: str
    orders: int
    amount: str
    currency: str | None
    file: str
    file_digest: str
    options: Mapping[str, object]
    maker: str
    maker_login: str
    maker_machine: str
    proposed_at: float


class _Answer(_Request, kw_only=True, forbid_unknown_fields=True):
    """... and who approves it: this text is signed."""

    approver: str
    login: str
    machine: str
    note: str
    signed_at: float


class _Signed(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    approval: str
    public_key: str
    signature: str


@frozen(kw_only=True)
class Approver:
    """A person whose signed approvals count, and who said so.

    Attributes:
        public_key: The public half of their key (Ed25519), 64 hexadecimal digits.
        by: The person who registered it.
    """

    name: str
    public_key: str
    by: Signature
    why: str

    @property
    def fingerprint(self) -> str:
        """Twenty digits that two persons compare."""
        return fingerprint_of(self.public_key)


@frozen(kw_only=True)
class ApproverKey:
    """The key with which one person signs approvals on a machine of their own.

    Attributes:
        private_key: 64 hexadecimal digits. A person who has them can approve in this name.
    """

    name: str
    private_key: str = field(repr=False)

    def __attrs_post_init__(self) -> None:
        Signature(who=self.name)
        if not _is_key(self.private_key):
            raise ValueError("private_key: 64 hexadecimal digits")

    @classmethod
    def create(cls, name: str) -> ApproverKey:
        """A new key.

        Raises:
            ModuleNotFoundError: The extra `signing` is not installed.
        """
        return cls(name=name, private_key=_ed25519().Ed25519PrivateKey.generate().private_bytes_raw().hex())

    @property
    def public_key(self) -> str:
        """What the journal has to know of it (`Journal.register_approver`)."""
        return str(self._key().public_key().public_bytes_raw().hex())

    def sign(self, proposal: Proposal, *, by: Signature, note: str) -> str:
        """The answer to a request, for ``Journal.approve_signed``.

        Args:
            by: This person, with the login and the machine they sign at, and when.
            note: What they looked at.
        """
        asked = _request(proposal)
        text = _text(
            _Answer(
                **{name: getattr(asked, name) for name in asked.__struct_fields__},
                approver=self.name,
                login=by.login,
                machine=by.machine,
                note=note,
                signed_at=by.at,
            )
        )
        signature = self._key().sign(text.encode()).hex()
        return _text(_Signed(approval=text, public_key=self.public_key, signature=signature))

    def _key(self) -> Any:
        return _ed25519().Ed25519PrivateKey.from_private_bytes(bytes.fromhex(self.private_key))


@frozen(kw_only=True)
class SignedApproval:
    """An answer whose signature is that of its key; whether the key is registered, the journal knows.

    Attributes:
        proposal: What was approved.
        by: Who says so, at which login and machine, and when by that machine's clock.
        reference: The first digits of its own digest: the journal takes an answer once.
    """

    proposal: Proposal
    by: Signature
    note: str
    public_key: str
    reference: str


def approval_request(proposal: Proposal) -> str:
    """What is to be approved, as a file for another machine."""
    return _text(_request(proposal))


def read_request(text: str | bytes) -> Proposal:
    """The proposal in such a file.

    Raises:
        ValueError: It is another file.
    """
    return _proposal(_read(text, _Request, "a request for an approval"))


def read_answer(text: str | bytes) -> SignedApproval:
    """The approval in an answer.

    Raises:
        ValueError: It is another file, or its text is not what was signed.
        ModuleNotFoundError: The extra `signing` is not installed.
    """
    library = _ed25519()
    signed = _read(text, _Signed, "a signed approval")
    answer = _read(signed.approval, _Answer, "a signed approval")
    if not _is_key(signed.public_key):
        raise ValueError("the file is not a signed approval: its key is not 64 hexadecimal digits")
    try:
        signature = bytes.fromhex(signed.signature)
        key = library.Ed25519PublicKey.from_public_bytes(bytes.fromhex(signed.public_key))
        key.verify(signature, signed.approval.encode())
    except (ValueError, _invalid_signature()) as error:
        raise ValueError("the signature does not fit what stands in the file: it was changed since") from error
    by = Signature(who=answer.approver, login=answer.login, machine=answer.machine, at=answer.signed_at)
    reference = hashlib.sha256(signed.approval.encode()).hexdigest()[:16]
    key_text = signed.public_key.lower()
    return SignedApproval(proposal=_proposal(answer), by=by, note=answer.note, public_key=key_text, reference=reference)


def is_as_asked(asked: Proposal, proposal: Proposal) -> bool:
    """Whether a proposal still is what somebody was asked to approve: orders, file, options, maker and moment."""
    return _request(asked) == _request(proposal)


def fingerprint_of(public_key: str) -> str:
    """The digits by which two persons compare a key."""
    digits = hashlib.sha256(bytes.fromhex(checked_key(public_key))).hexdigest()[:20]
    return " ".join(digits[first : first + 4] for first in range(0, 20, 4))


def checked_key(public_key: str) -> str:
    """A public key, in small letters. Raises ``ValueError`` where it is something else."""
    if not _is_key(text := public_key.strip().lower()):
        raise ValueError("public_key: the 64 hexadecimal digits that the approver's machine shows")
    return text


def _request(proposal: Proposal) -> _Request:
    options: Mapping[str, object] = msgspec.json.decode(msgspec.json.encode(proposal.options))
    return _Request(
        kind=_KIND,
        digest=proposal.digest,
        batch_id=proposal.batch_id,
        orders=proposal.orders,
        amount=format(proposal.amount, "f"),
        currency=proposal.currency,
        file=proposal.file,
        file_digest=proposal.file_digest,
        options=options,
        maker=proposal.by.who,
        maker_login=proposal.by.login,
        maker_machine=proposal.by.machine,
        proposed_at=proposal.by.at,
    )


def _proposal(request: _Request) -> Proposal:
    by = Signature(who=request.maker, login=request.maker_login, machine=request.maker_machine, at=request.proposed_at)
    try:
        amount = Decimal(request.amount)
    except InvalidOperation as error:
        raise ValueError("amount: a number") from error
    if not amount.is_finite() or amount.is_signed() or abs(amount.adjusted()) > _DIGITS:
        raise ValueError(f"amount: a sum of at most {_DIGITS} digits")  # to write out another one takes all memory
    if request.orders < 0 or not 0 <= request.proposed_at < _FAR:
        raise ValueError("orders, proposed_at: a count, and seconds since 1970")
    return Proposal(
        digest=request.digest,
        batch_id=request.batch_id,
        orders=request.orders,
        amount=amount,
        currency=request.currency,
        file=request.file,
        by=by,
        file_digest=request.file_digest,
        options=request.options,
    )


def _read(text: str | bytes, kind: type[T], what: str) -> T:
    if len(text) > _MOST:
        raise ValueError(f"the file is not {what}: it is too long")
    try:
        found = msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the file is not {what}") from error
    if isinstance(found, _Request) and found.kind != _KIND:
        raise ValueError(f"the file is not {what} that this version knows")
    return found


def _text(struct: msgspec.Struct) -> str:
    return msgspec.json.encode(struct).decode()


def _is_key(text: str) -> bool:
    return len(text) == 64 and all(digit in "0123456789abcdef" for digit in text.lower())


def _ed25519() -> ModuleType:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(_NO_LIBRARY) from error
    return ed25519


def _invalid_signature() -> type[Exception]:
    from cryptography.exceptions import InvalidSignature

    return InvalidSignature
