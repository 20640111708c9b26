"""Who is believed to have sent what, and the words for it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict

from payments_async.ipn import DOCUMENTED_SENDERS, SENDERS_2026, SENDERS_OLDER, UNIX_SOCKET
from payments_async.ipn._senders import Senders

PROXIES = ["127.0.0.1", "10.0.0.0/8", "2001:db8::/32"]
SENDERS = ["41.2.2.10", "2a00::10", "::ffff:41.2.2.11", "192.0.2.0/24"]


def decide(*lines: tuple[str, str], peer: str = "127.0.0.1", **settings: object) -> tuple[bool, str]:
    """The decision on a request with these header lines."""
    sender = Senders(SENDERS, PROXIES, **settings).check(peer, CIMultiDict(lines))  # type: ignore[arg-type]
    return sender.is_known, sender.why


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        ("for=41.2.2.10", True),
        ('for="41.2.2.10:4711";proto=https', True),
        ('For="[2a00::10]:4711"', True),
        ('for="[2a00::10]"', True),
        ("for=41.2.2.10, for=10.1.1.1", True),
        ("for=41.2.2.10, for=6.6.6.6", False),
        ('for=6.6.6.6, for="41.2.2.10"', True),
        ("by=10.0.0.1", False),
        ("for=unknown", False),
        ("for=_hidden", False),
        ('for="41.2.2.10', False),
        ('for=41.2.2.10;x="', False),
        ("for=41.2.2.10 for=41.2.2.10", False),
        ("for=6.6.6.6;for=41.2.2.10", False),
        ("for=41.2.2.10,", False),
        ("", False),
    ],
)
def test_forwarded_is_read_by_its_grammar(value: str, accepted: bool) -> None:
    """RFC 7239, from the right; whatever breaks it is refused whole."""
    assert accepted == decide(("Forwarded", value))[0]


def test_an_open_quotation_mark_swallows_no_line_of_a_proxy() -> None:
    """A stranger's line is refused by itself, whatever the proxy appends after it."""
    assert not decide(("Forwarded", 'for=41.2.2.10, for="x'), ("Forwarded", 'for=6.6.6.6;by="y"'))[0]


def test_headers_that_disagree_are_refused() -> None:
    """A proxy that writes one header passes a forged other one on."""
    genuine = ("X-Forwarded-For", "41.2.2.10")
    assert decide(genuine, ("Forwarded", "for=41.2.2.10"))[0]
    refused, why = decide(("X-Forwarded-For", "6.6.6.6"), ("Forwarded", "for=41.2.2.10"))
    assert (False, True) == (refused, "disagree" in why)
    assert decide(genuine, ("Forwarded", "for=6.6.6.6"), proxy_headers=["X-Forwarded-For"])[0]


@pytest.mark.parametrize(
    ("peer", "accepted"),
    [
        ("41.2.2.10", True),
        ("::ffff:41.2.2.10", True),
        ("41.2.2.11", True),
        ("2a00::10", True),
        ("2A00:0:0::10", True),
        ("2a00::10%eth0", True),
        ("192.0.2.77", True),
        ("2a00::11", False),
        ("041.2.2.10", False),
        ("127.0.0.1", False),
        ("nobody", False),
        ("", False),
    ],
)
def test_an_address_is_known_in_every_spelling(peer: str, accepted: bool) -> None:
    """IPv6, IPv4-mapped, networks and zones; what is not an address is nobody."""
    assert accepted == decide(peer=peer)[0]


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        ("[2a00::10]:443", True),
        ("2a00::10", True),
        (" 41.2.2.10 ", True),
        ("6.6.6.6, 2001:db8::5", False),
        ("41.2.2.10, 2001:db8::5, 10.255.0.1", True),
        ("41.2.2.10, garbage", False),
        ("41.2.2.10,", False),
        ("10.1.1.1", False),
        ("0x29.2.2.10", False),
    ],
)
def test_the_walk_starts_at_the_peer(value: str, accepted: bool) -> None:
    """The first hop that is not a trusted proxy is the sender; garbage on the way ends it."""
    assert accepted == decide(("X-Forwarded-For", value))[0]


def test_a_broken_header_is_refused_beside_a_good_one() -> None:
    """Even where both lead to the proxy itself, which is a known sender too."""
    senders = Senders(["10.0.0.1"], ["10.0.0.1"])
    good, broken = ("X-Forwarded-For", "10.0.0.1"), ("Forwarded", 'for="')
    assert senders.check("10.0.0.1", CIMultiDict([good])).is_known
    assert not senders.check("10.0.0.1", CIMultiDict([good, broken])).is_known


def test_a_unix_socket_is_trusted_by_name_only() -> None:
    """A proxy in front of a Unix socket has no address."""
    header = CIMultiDict({"X-Forwarded-For": "41.2.2.10"})
    assert Senders(SENDERS, [UNIX_SOCKET]).check(UNIX_SOCKET, header).is_known
    assert not Senders(SENDERS, PROXIES).check(UNIX_SOCKET, header).is_known


def test_a_refusal_shows_a_forged_text_on_one_short_line() -> None:
    """What a stranger wrote cannot break a log."""
    _, why = decide(("X-Forwarded-For", "a\nINFO all is well" + "b" * 500))
    assert "\n" not in why
    assert len(why) < 200


def test_the_presets_are_the_documented_addresses() -> None:
    """Both pairs, and nothing else, by default."""
    assert set(DOCUMENTED_SENDERS) == {*SENDERS_2026, *SENDERS_OLDER}
    senders = Senders()
    assert all(senders.check(address, CIMultiDict()).is_known for address in DOCUMENTED_SENDERS)
    assert not senders.check("127.0.0.1", CIMultiDict()).is_known


@pytest.mark.parametrize("text", ["10.0.0.1/8", "example.org", "", "300.1.1.1", "41.2.2.10:80"])
def test_a_text_that_is_no_network_is_refused_at_once(text: str) -> None:
    """A typing mistake does not become a closed or an open door."""
    with pytest.raises(ValueError, match="neither an address nor a network"):
        Senders([text])


def test_one_text_in_place_of_many_is_refused() -> None:
    """It would be read letter by letter."""
    with pytest.raises(TypeError, match="tuple"):
        Senders("41.2.2.10")


@settings(deadline=None)
@given(st.text(max_size=40), st.sampled_from(["X-Forwarded-For", "Forwarded"]))
def test_no_header_of_a_stranger_lets_anybody_in(value: str, header: str) -> None:
    """Behind our proxy, which appended the true address, nothing on the left matters."""
    true = "6.6.6.6" if header == "X-Forwarded-For" else "for=6.6.6.6"
    assert not decide((header, f"{value}, {true}"))[0]
    assert not decide((header, value), (header, true))[0]
