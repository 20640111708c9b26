"""What a record holds is what was put into it, however small it is stored."""

from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from payments_async.journal._records import pack_transaction_id, unpack_transaction_id

WRITABLE = st.text(st.characters(codec="utf-8"))


@given(text=WRITABLE | st.text(st.sampled_from("0123456789abcdef-"), min_size=36, max_size=36))
@example(text="")
@example(text="fifteen letters")
@example(text="sixteen letters.")
@example(text="fifteen letter\x02")
@example(text="ends with a mark\x01")
@example(text="ends with two marks\x02\x02")
@example(text="0123456--89abcdef0123456789abcdef---")
def test_a_transaction_id_that_is_no_uuid_comes_back_as_it_came(text: str) -> None:
    """It is never taken for the sixteen bytes of one, whatever a service calls its transactions."""
    packed = pack_transaction_id(text)
    assert packed is not None
    if len(packed) != 16:
        assert text == unpack_transaction_id(packed)
    else:
        assert str(UUID(text)) == text.lower()


@given(number=st.uuids())
def test_a_uuid_is_stored_in_sixteen_bytes(number: UUID) -> None:
    """In small or in capital letters it is the same."""
    assert number.bytes == pack_transaction_id(str(number)) == pack_transaction_id(str(number).upper())
    assert (str(number) if number.int else None) == unpack_transaction_id(number.bytes)
