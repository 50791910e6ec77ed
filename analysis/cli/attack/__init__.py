"""``testbed attack``: success of malicious servers and dishonest clients, and inference from a server's sums."""

from analysis.cli.attack import inference
from analysis.cli.attack.outcomes import attack as attack

attack.command("membership", epilog=inference.MEMBERSHIP_EPILOG)(inference.membership)
attack.command("property", epilog=inference.PROPERTY_EPILOG)(inference.property_)
