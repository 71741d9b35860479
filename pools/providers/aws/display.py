"""Texts and form fields of pools of network load balancers."""

from pools.providers.display import OptionField, OptionForm, ProviderTexts

TEXTS = ProviderTexts(
    choice="ports of network load balancers on AWS",
    adding="Berth creates a network load balancer for each, or uses the one that you name.",
    takes_claims="They take claims once AWS has provisioned them, which takes minutes.",
    creating="AWS provisions its load balancer.",
)
FORM = OptionForm(
    "Network load balancers",
    (
        OptionField("region", "Region"),
        OptionField("scheme", "Scheme"),
        OptionField("ip_type", "IP type"),
        OptionField("certificate", "Certificate of TLS ports"),
        OptionField("endpoint", "API address"),
    ),
    "Subnets, tags, health checks and other options are set in the file.",
)
