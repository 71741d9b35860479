"""Texts and form fields of pools of Tencent load balancers."""

from pools.providers.display import OptionField, OptionForm, ProviderTexts

TEXTS = ProviderTexts(
    choice="load balancers (CLB) of Tencent Cloud, whose ports claims hold",
    adding="Berth creates a load balancer for each, which Tencent Cloud charges for.",
    takes_claims="They take claims once Tencent Cloud has provisioned them.",
    creating="Its load balancer is being created.",
)
FORM = OptionForm(
    "Load balancers",
    (
        OptionField("region", "Region"),
        OptionField("load_balancer.type", "Network"),
        OptionField("load_balancer.vpc_id", "VPC"),
        OptionField("load_balancer.subnet_id", "Subnet"),
        OptionField("load_balancer.vip_isp", "Line"),
        OptionField("load_balancer.bandwidth_package_id", "Bandwidth package"),
    ),
    "Credentials are those of the workers. Bandwidth, zones, tags and other options are set in the "
    "file.",
)
