"""Certificates of committees in `flamingo`: enough members have signed the committee and its key."""

from collections.abc import Collection, Sequence

from testbed.aggregation.flamingo.messages import SERVICE_DOMAIN, Certificate, service_content
from testbed.aggregation.kit.message_parts import SignatureOf
from testbed.aggregation.kit.participant import check_signers
from testbed.committee.choice import verified
from testbed.committee.parameters import CommitteeSection
from testbed.crypto import memo
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.messages import signed_content
from testbed.parties.client import Environment


def check_certificate(
    certificate: Certificate, section: CommitteeSection, round_number: int, environment: Environment
) -> None:
    """Raise `Refusal` unless this is the committee of the round and t of its members have signed its key.

    Args:
        certificate: the committee's service with signatures.
        section: the experiment's section `committee`.
        round_number: the round.
        environment: of the client that checks.
    """
    service = certificate.service
    # First the members, then their signatures: a server could sign with t clients of its own choice.
    verified(section, service.committee, round_number, environment)
    members = service.committee.clients
    needed = section.threshold_for(len(members))
    content = service_content(service.digest)
    check_members_signatures(certificate.signatures, members, needed, SERVICE_DOMAIN, content, environment)


def check_members_signatures(
    signatures: Sequence[SignatureOf],
    members: Collection[int],
    needed: int,
    domain: bytes,
    content: bytes,
    environment: Environment,
) -> None:
    """Raise `Refusal` unless at least `needed` members have signed the same content.

    Args:
        signatures: the signatures that the server shows.
        members: client numbers of the committee.
        needed: t.
        domain: of the signatures.
        content: the signed content.
        environment: of the client that checks.
    """
    # Before any verification: signatures of others, or two of one member, must not count.
    check_signers(signatures, set(members), needed, protocol="flamingo", signers="member")
    full, directory = domain + environment.experiment_id, environment.directory
    signed = [(directory.signing_key(row.client), full, content, row.signature) for row in signatures]
    meter("ed25519.verify", len(signed))
    follows_from = signed_content(full, content, [[key, signature] for key, _, _, signature in signed])
    if (place := memo.first_unverified(follows_from, signed)) is not None:
        detail = f"the signature of member {signatures[place].client} does not match the content shown"
        raise Refusal("flamingo.invalid-signature", detail)
