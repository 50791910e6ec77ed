"""How everybody in `flamingo` knows a committee and its key: enough of its members have signed them."""

from collections.abc import Collection, Sequence

from testbed.aggregation.flamingo.messages import SERVICE_DOMAIN, Certificate, service_content
from testbed.aggregation.kit.message_parts import SignatureOf
from testbed.committee.choice import verified
from testbed.committee.parameters import CommitteeSection
from testbed.crypto import InvalidSignature, remembered
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.messages import signed_content
from testbed.parties.client import Environment


def check_certificate(
    certificate: Certificate, section: CommitteeSection, round_number: int, environment: Environment
) -> None:
    """Raise `Refusal` unless this is the committee of the round, and t of its members have signed its key."""
    service = certificate.service
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
    """Raise `Refusal` unless these are signatures of so many members, or more, on the same content."""
    signers = {row.client for row in signatures}
    if len(signers) != len(signatures) or not signers <= set(members):
        raise Refusal("flamingo.foreign-signature", "a signature twice, or of somebody who is no member")
    if len(signers) < needed:
        raise Refusal("flamingo.too-few-signatures", f"{len(signers)} signatures of members, {needed} needed")
    full, directory = domain + environment.experiment_id, environment.directory
    signed = [(directory.signing_key(row.client), full, content, row.signature) for row in signatures]
    meter("ed25519.verify", len(signed))
    follows_from = signed_content(full, content, [[key, signature] for key, _, _, signature in signed])
    if remembered.all_verify(follows_from, lambda: signed):
        return
    for row, one in zip(signatures, signed, strict=True):
        try:
            remembered.verify(*one)
        except InvalidSignature:
            raise Refusal("flamingo.other-signature", f"member {row.client} has not signed what is shown") from None
